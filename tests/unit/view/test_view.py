"""The page for many runs follows its files, finds words wherever they stand, and hides what a blind
annotator must not see.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import prill
from prill.errors import UsageError
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord, Usage, Verdict
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.run import ViewConfig, ViewResult, view
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite
from tests.support.labelling import Client, asked

aiohttp = pytest.importorskip("aiohttp")


def run(id: str, **task: Any) -> dict[str, Any]:
    """One step with a picture, page text and a thought, and an answer."""
    step = {
        "observation": {"screenshot": "page.png", "text": f"Bäckerei Müller, order {id}"},
        "action": {"kind": "click", "text": "click the Checkout button"},
        "thought": "The basket is full.",
    }
    return {"id": id, "task": {"goal": f"Buy bread {id}", **task}, "steps": [step], "answer": "ok"}


def verdict(id: str, success: bool | None, reason: str = "", judge: str = "vlm") -> Verdict:
    unscored = "refusal" if success is None else None
    info = EvaluatorInfo(judge, "1")
    return Verdict(
        id=id, success=success, reason=reason, unscored=unscored, evaluator=info, usage=Usage()
    )


def lines(records: Iterable[object]) -> bytes:
    return b"".join(
        json.dumps(one).encode() + b"\n" if isinstance(one, dict) else encode(one)
        for one in records
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three runs, of which two are judged."""
    Image.new("RGB", (40, 30)).save(tmp_path / "page.png")
    (tmp_path / "t.jsonl").write_bytes(lines(map(run, "abc")))
    (tmp_path / "v.jsonl").write_bytes(
        lines([verdict("a", True, "the receipt is shown"), verdict("b", None)])
    )
    return tmp_path


def opened(files: Path, **options: Any) -> Library:
    library = Library([files / "t.jsonl"], [files / "v.jsonl"], **options)
    read(library)
    return library


def read(library: Library) -> None:
    for _ in library.refresh():
        pass


def found(library: Library, query: str, *, reasons: bool = True) -> list[str] | None:
    numbers = library.search(query, reasons=reasons)
    return None if numbers is None else sorted(library.ids[number] for number in numbers)


def test_rows_are_read_before_texts_and_only_those_of_the_queue(files: Path) -> None:
    """A list needs no texts, so that the first page does not wait for them."""
    with closing(Library([files / "t.jsonl"])) as library:
        for _ in library.read_rows():
            pass
        assert (library.ids, library.read_share()) == (["a", "b", "c"], 0.5)
        assert found(library, "bäckerei") == []
        library.keep([2, 0])
        assert len(list(library.refresh())) == 2
        assert library.read_share() == 1
        assert found(library, "bäckerei") == ["a", "c"] and found(library, "b") == ["a", "c"]


async def test_nothing_reads_once_the_page_has_closed(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is closed then, which a thread that reads would not survive."""
    reading: list[bool] = []
    started = threading.Event()

    def slow(self: Library) -> Iterator[int]:
        reading.append(True)
        started.set()
        time.sleep(0.1)
        reading.clear()
        yield 1

    monkeypatch.setattr(Library, "refresh", slow)
    with closing(Library([files / "t.jsonl"])) as library:
        async with ViewSite(library).following():
            await asyncio.to_thread(started.wait)
        assert not reading


def test_what_went_wrong_follows_verdicts_and_labels(files: Path) -> None:
    """A run that failed stands there, and no longer once it did not fail."""

    def failed() -> list[str]:
        return [run.id for group in library.summary().failures.causes for run in group.runs]

    (files / "v.jsonl").write_bytes(lines([verdict("a", False), verdict("b", True)]))
    with closing(opened(files, labels=[files / "l.jsonl"])) as library:
        assert failed() == ["a"]
        with (files / "v.jsonl").open("ab") as file:
            file.write(lines([verdict("a", True)]))
        label = LabelRecord(id="c", success=False, annotator="bob", source="human")
        (files / "l.jsonl").write_bytes(lines([label]))
        read(library)
        assert failed() == ["c"]
        assert (library.summary().failures.failed, library.summary().failures.judged) == (1, 3)


def test_rows_say_what_judges_said(files: Path) -> None:
    with closing(opened(files)) as library:
        assert [(one.id, one.outcomes, one.reasons) for one in library.rows] == [
            ("a", ("success",), ("the receipt is shown",)),
            ("b", ("unscored",), ("refusal",)),
            ("c", ("",), ("",)),
        ]
        [progress] = library.progress()
        assert (progress.name, progress.judged, progress.unscored) == ("vlm", 2, {"refusal": 1})


def test_files_are_followed_line_by_line(files: Path) -> None:
    """An incomplete line is nothing until its end is there; then it is a row."""
    with closing(opened(files)) as library:
        known, _ = library.changes(0, 1000)
        more, said = lines([run("d")]), lines([verdict("c", False, "no receipt")])
        with (files / "t.jsonl").open("ab") as t, (files / "v.jsonl").open("ab") as v:
            t.write(more[:50])
            v.write(said[:20])
        read(library)
        assert library.ids == ["a", "b", "c"] and library.rows[2].outcomes == ("",)
        assert library.problems == []
        with (files / "t.jsonl").open("ab") as t, (files / "v.jsonl").open("ab") as v:
            t.write(more[50:])
            v.write(said[20:])
        read(library)
        assert library.ids == ["a", "b", "c", "d"] and library.rows[2].outcomes == ("failure",)
        assert [number for number, _ in library.changes(known, 1000)[1]] == [2, 3]
        assert library[3].task.goal == "Buy bread d"


def test_a_file_that_was_replaced_is_read_anew(files: Path) -> None:
    with closing(opened(files)) as library:
        generation = library.generation
        (files / "new.jsonl").write_bytes(lines([run("x")]))
        (files / "new.jsonl").replace(files / "t.jsonl")
        read(library)
        assert library.ids == ["x"] and library.generation > generation
        assert found(library, "bread") == ["x"]


def test_a_verdict_file_may_come_later(files: Path) -> None:
    library = Library([files / "t.jsonl"], [files / "later.jsonl"])
    with closing(library):
        read(library)
        assert library.judges == []
        (files / "later.jsonl").write_bytes(lines([verdict("c", True, "yes")]))
        read(library)
        assert [one.outcomes for one in library.rows] == [("",), ("",), ("success",)]


def test_broken_lines_are_rows_and_problems(files: Path) -> None:
    with (files / "t.jsonl").open("ab") as t:
        t.write(b'{"id": "d"}\n' + lines([run("a")]))
    with closing(opened(files)) as library:
        assert [one.broken is not None for one in library.rows] == [False] * 3 + [True] * 2
        assert len(library.problems) == 2 and "t.jsonl:4" in library.problems[0]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("backerei", ["a", "b", "c"]),  # accents and capitals make no difference
        ("MÜLLER", ["a", "b", "c"]),
        ("basket", ["a", "b", "c"]),  # a thought
        ("checkout", ["a", "b", "c"]),  # an action
        ("receipt", ["a"]),  # a judge's reason
        ("receipt bread", ["a"]),  # words may stand in different places
        ("receipt nowhere", []),
        ("rec", ["a"]),  # the beginning of a word
        ('"', None),
        ("", None),
        ("NOT bread", []),  # operators are words like others
    ],
)
def test_search(files: Path, query: str, ids: list[str] | None) -> None:
    with closing(opened(files)) as library:
        assert found(library, query) == ids


def test_search_knows_the_newest_reason_only(files: Path) -> None:
    with closing(opened(files)) as library:
        with (files / "v.jsonl").open("ab") as v:
            v.write(lines([verdict("a", False, "the basket is empty")]))
        read(library)
        assert found(library, "receipt") == []
        assert found(library, "empty") == ["a"] and found(library, "empty", reasons=False) == []


def test_labels_of_people_count_as_in_the_report(files: Path) -> None:
    (files / "l.jsonl").write_bytes(
        lines(
            LabelRecord(id="a", success=success, annotator=name, source="human")
            for name, success in (("x", True), ("y", True), ("z", False))
        )
    )
    with closing(opened(files, labels=[files / "l.jsonl"])) as library:
        assert library.rows[0].truth == "success" and library.label_source == "human"
        with (files / "l.jsonl").open("ab") as labels:
            labels.write(lines([LabelRecord(id="b", success=False, source="human")]))
        read(library)
        assert library.rows[1].truth == "failure"


@asynccontextmanager
async def page(
    files: Path, *, blind: bool = False, annotator: str | None = "ada"
) -> AsyncIterator[Client]:
    with ExitStack() as stack:
        library = opened(files, labels=[files / "l.jsonl"], annotator=annotator)
        stack.enter_context(closing(library))
        session = None
        if annotator is not None:
            log = stack.enter_context(LabelLog(files / "l.jsonl", annotator))
            library.begin_labels(log)
            session = LabelSession(library, log)
        site = ViewSite(library, session, blind=blind)
        async with site.following(), asked(site) as client:
            yield client


async def test_a_label_is_for_the_run_that_the_page_shows(files: Path) -> None:
    """Replaced files renumber the runs: a page that does not know yet is refused."""
    async with page(files) as client:
        decision = {"choice": "failure", "id": "c", "version": 0}
        status, refused = await client.post("api/labels/1", decision)
        assert status == 409 and "replaced" in refused["error"]
        assert (files / "l.jsonl").read_bytes() == b""
        assert (await client.post("api/labels/2", decision))[0] == 200


async def test_a_label_is_for_the_content_that_the_page_shows(files: Path) -> None:
    async with page(files) as client:
        shown = (await client.json("api/runs/0"))["digest"]
        decision = {"choice": "failure", "id": "a", "digest": shown}
        text = (files / "t.jsonl").read_text()
        (files / "t.jsonl").write_text(text.replace("Buy bread a", "Buy wine a."))
        status, refused = await client.post("api/labels/0", decision)
        assert status == 409 and "changed meanwhile" in refused["error"]
        (files / "t.jsonl").write_text(text)
        assert (await client.post("api/labels/0", decision))[0] == 200
        before = (files / "l.jsonl").read_bytes()
        (files / "t.jsonl").rename(files / "renamed.jsonl")
        assert (await client.post("api/labels/0", decision | {"choice": "success"}))[0] == 409
        while not (problems := (await client.json("api/state"))["problems"]):
            await asyncio.sleep(0.1)
        assert "renamed" in problems[0] and (files / "l.jsonl").read_bytes() == before


async def test_an_annotators_labels_stand_beside_an_oracles(files: Path) -> None:
    """Sources are never mixed: with an annotator at the page, people's labels are shown."""
    (files / "l.jsonl").write_bytes(lines([LabelRecord(id="a", success=False, source="human")]))
    (files / "o.jsonl").write_bytes(lines([LabelRecord(id="a", success=True, source="oracle")]))
    with (
        LabelLog(files / "l.jsonl", "ada") as log,
        closing(opened(files, labels=[files / "o.jsonl"], annotator="ada")) as library,
    ):
        library.begin_labels(log)
        assert [one.truth for one in library.rows] == ["failure", "", ""]
        assert library.label_source == "human"


async def test_blind_shows_no_cost_before_the_label(files: Path) -> None:
    spent = Usage(calls=1, usd=0.25)
    (files / "v.jsonl").write_bytes(lines([replace(verdict("a", False), usage=spent)]))
    async with page(files, blind=True) as client:

        async def cost() -> object:
            return (await client.json("api/state"))["rows"][0]["row"]["usd"]

        assert await cost() == [None]
        await client.post("api/labels/0", {"choice": "success"})
        assert await cost() == [0.25]


async def test_the_run_with_its_pictures(files: Path) -> None:
    async with page(files, annotator=None) as client:
        shown = await client.json("api/runs/2")
        assert shown["trajectory"]["task"]["goal"] == "Buy bread c"
        picture = shown["pictures"][0]
        assert (picture["width"], picture["height"]) == (40, 30)
        assert (await client.get(picture["src"]))[1].startswith(b"\x89PNG")
        for path in ("pictures/2/1", "api/runs/3", "api/labels/0"):  # there is no annotator
            assert (await client.get(path))[0] == 404, path
        assert b"trajectories" in (await client.get("api/summary"))[1]
        assert str(files) not in json.dumps(shown)


async def test_from_python(files: Path) -> None:
    stop, addresses = asyncio.Event(), list[str]()
    config = ViewConfig(trajectories=[files / "t.jsonl"], verdicts=[files / "v.jsonl"])
    serving_page = asyncio.create_task(view.run_async(config, stop=stop, opened=addresses.append))
    async with aiohttp.ClientSession() as http:
        while not addresses:
            await asyncio.sleep(0.01)
        client = Client(http, addresses[0])
        while len((await client.json("api/state"))["rows"]) < 3:
            await asyncio.sleep(0.01)
    stop.set()
    assert await serving_page == ViewResult(runs=3)
    assert prill.ViewConfig is ViewConfig


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"annotator": "ada"}, "give an annotator, and what they write"),
        ({"blind": True}, "only for annotators"),
        ({"output": "l.jsonl"}, "give an annotator"),
        ({"annotator": " ", "output": "l.jsonl"}, "expected a name"),
        ({"annotator": "a\udcff", "output": "l.jsonl"}, "without control characters"),
        ({"annotator": "a" * 201, "output": "l.jsonl"}, "201 characters are too many"),
        ({"trajectories": ()}, "give trajectories, or captions alone"),
    ],
)
def test_options_that_depend_on_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        ViewConfig(**{"trajectories": ["t.jsonl"], **options})


async def test_no_such_file(files: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        await view.run_async(
            ViewConfig(trajectories=[files / "t.jsonl"], verdicts=[files / "no" / "v.jsonl"]),
            stop=asyncio.Event(),
        )
