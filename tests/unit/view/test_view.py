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
from prill.io.store import encode, read_labels
from prill.runs.view import OpenedView, ViewConfig, ViewResult, view_async
from prill.types import EvaluatorInfo, LabelRecord, Usage, Verdict
from prill.ui.serving import serving
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite

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


def test_the_summary_says_what_went_wrong(files: Path) -> None:
    failed = [verdict(id, False, f"no receipt for {id}") for id in "ac"]
    (files / "v.jsonl").write_bytes(lines([*failed, verdict("b", None)]))
    with closing(opened(files)) as library:
        (group,) = library.summary().causes
        assert [(run.id, run.reason) for run in group.runs] == [
            ("a", "no receipt for a"),
            ("c", "no receipt for c"),
        ]
        assert library.summary().first_failures == 0
        assert [one.cause for one in library.rows] == [
            "only the judge's reason",
            "",
            "only the judge's reason",
        ]


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


def test_causes_follow_verdicts_and_labels(files: Path) -> None:
    """A run that failed has a cause, and none once it did not fail."""
    (files / "v.jsonl").write_bytes(lines([verdict("a", False), verdict("b", True)]))
    with closing(opened(files, labels=[files / "l.jsonl"])) as library:
        assert [one.cause for one in library.rows] == ["no cause found", "", ""]
        known = library.changed
        read(library)
        assert library.changed == known, "nothing is looked for again"
        with (files / "v.jsonl").open("ab") as file:
            file.write(lines([verdict("a", True)]))
        label = LabelRecord(id="c", success=False, annotator="bob", source="human")
        (files / "l.jsonl").write_bytes(lines([label]))
        read(library)
        assert [one.cause for one in library.rows] == ["", "", "no cause found"]
        assert [run.by for group in library.summary().causes for run in group.runs] == [
            "human label"
        ]
        assert {number for number, _ in library.changes(known, 100)[1]} == {0, 2}


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


class Page:
    """The page's requests, for one sitting."""

    def __init__(self, http: Any, url: str) -> None:
        self.http, self.url = http, url

    async def get(self, path: str) -> Any:
        async with self.http.get(self.url + path) as answer:
            body = await answer.read()
            assert answer.status == 200, body
            return json.loads(body) if "json" in answer.content_type else body

    async def status(self, path: str) -> int:
        async with self.http.get(self.url + path) as answer:
            return int(answer.status)

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        origin = self.url.rsplit("/", 2)[0]
        async with self.http.post(self.url + path, json=body, headers={"Origin": origin}) as answer:
            return answer.status, json.loads(await answer.read())


@asynccontextmanager
async def page(
    files: Path, *, blind: bool = False, annotator: str | None = "ada"
) -> AsyncIterator[Page]:
    with ExitStack() as stack:
        library = stack.enter_context(closing(opened(files, labels=[files / "l.jsonl"])))
        session = None
        if annotator is not None:
            log = stack.enter_context(LabelLog(files / "l.jsonl", annotator))
            library.begin_labels(log)
            session = LabelSession(library, log)
        site = ViewSite(library, session, reveal="after" if blind else "always")
        async with site.following(), serving(site) as url, aiohttp.ClientSession() as http:
            yield Page(http, url)


async def test_a_label_is_on_disk_with_the_answer(files: Path) -> None:
    async with page(files) as asked:
        status, saved = await asked.post(
            "api/labels/1", {"choice": "failure", "note": "no bread", "version": 0}
        )
        assert status == 200 and saved["mine"]["choice"] == "failure"
        assert list(read_labels(files / "l.jsonl")) == [
            LabelRecord(id="b", success=False, annotator="ada", note="no bread")
        ]
        state = await asked.get("api/state?generation=0&since=0")
        assert [one["mine"] for one in state["rows"]] == [None, "failure", None]
        assert state["rows"][1]["row"]["truth"] == "failure"
        assert (await asked.post("api/labels/1", {"choice": "success", "version": 0}))[0] == 409
        status, undone = await asked.post("api/undo", {})
        assert (status, undone["number"], undone["undone"]["note"]) == (200, 1, "no bread")
        assert (files / "l.jsonl").read_bytes() == b""
        state = await asked.get("api/state")
        assert [one["row"]["truth"] for one in state["rows"]] == ["", "", ""]
        assert (await asked.post("api/undo", {})) == (200, None)


async def test_a_label_is_for_the_run_that_the_page_shows(files: Path) -> None:
    """Replaced files renumber the runs: a page that does not know yet is refused."""
    async with page(files) as asked:
        decision = {"choice": "failure", "id": "c", "version": 0}
        status, refused = await asked.post("api/labels/1", decision)
        assert status == 409 and "replaced" in refused["error"]
        assert (files / "l.jsonl").read_bytes() == b""
        assert (await asked.post("api/labels/2", decision))[0] == 200


async def test_an_annotators_labels_stand_beside_an_oracles(files: Path) -> None:
    """Sources are never mixed: with an annotator at the page, people's labels are shown."""
    (files / "l.jsonl").write_bytes(lines([LabelRecord(id="a", success=False, source="human")]))
    with (
        LabelLog(files / "l.jsonl", "ada") as log,
        closing(opened(files, labels=[])) as library,
    ):
        oracle = LabelRecord(id="a", success=True, source="oracle")
        (files / "o.jsonl").write_bytes(lines([oracle]))
        library.begin_labels(log, [files / "o.jsonl"])
        assert [one.truth for one in library.rows] == ["failure", "", ""]
        assert library.label_source == "human" and list(library.others) == ["(unnamed)"]


async def test_two_people_at_once_lose_nothing(files: Path) -> None:
    """Each has a file; both see the agreement of the two."""
    async with page(files) as ada:
        with LabelLog(files / "bob.jsonl", "bob") as log, closing(opened(files)) as library:
            session = LabelSession(library, log)
            site = ViewSite(library, session)
            async with serving(site) as url, aiohttp.ClientSession() as http:
                bob = Page(http, url)
                await asyncio.gather(
                    *(ada.post(f"api/labels/{n}", {"choice": "success"}) for n in range(3)),
                    *(bob.post(f"api/labels/{n}", {"choice": "failure"}) for n in range(3)),
                )
    assert sorted(one.id for one in read_labels(files / "l.jsonl")) == ["a", "b", "c"]
    assert [one.success for one in read_labels(files / "bob.jsonl")] == [False] * 3


async def test_blind_shows_nothing_before_the_label(files: Path) -> None:
    (files / "l.jsonl").write_bytes(
        lines([LabelRecord(id="a", success=True, annotator="bob", source="human", note="bob's")])
    )
    async with page(files, blind=True) as asked:
        state = await asked.get("api/state")
        assert [one["row"]["outcomes"] for one in state["rows"]] == [[""]] * 3
        assert {one["row"]["truth"] for one in state["rows"]} == {""}
        told = json.dumps([state["rows"], await asked.get("api/runs/0")])
        assert "receipt" not in told and "bob" not in told
        assert await asked.get("api/search?q=receipt") == []
        assert await asked.status("api/summary") == 403
        assert await asked.status("api/calls/0/0") == 403
        await asked.post("api/labels/0", {"choice": "success"})
        shown = await asked.get("api/runs/0")
        assert shown["verdicts"][0]["reason"] == "the receipt is shown"
        assert {one["annotator"] for one in shown["labels"]} == {"ada", "bob"}
        state = await asked.get("api/state")
        assert [one["row"]["outcomes"] for one in state["rows"]] == [["success"], [""], [""]]


async def test_blind_shows_no_cost_and_no_cause_before_the_label(files: Path) -> None:
    spent = Usage(calls=1, usd=0.25)
    (files / "v.jsonl").write_bytes(lines([replace(verdict("a", False), usage=spent)]))
    async with page(files, blind=True) as asked:

        async def told() -> tuple[str, list[float | None]]:
            row = (await asked.get("api/state"))["rows"][0]["row"]
            return row["cause"], row["usd"]

        assert await told() == ("", [None])
        await asked.post("api/labels/0", {"choice": "success"})
        assert await told() == ("no cause found", [0.25])


async def test_the_run_with_its_pictures(files: Path) -> None:
    async with page(files, annotator=None) as asked:
        shown = await asked.get("api/runs/2")
        assert shown["trajectory"]["task"]["goal"] == "Buy bread c"
        picture = shown["pictures"][0]
        assert (picture["width"], picture["height"]) == (40, 30)
        assert (await asked.get(picture["src"])).startswith(b"\x89PNG")
        assert await asked.status("pictures/2/1") == 404
        assert await asked.status("api/runs/3") == 404
        assert await asked.status("api/labels/0") == 404  # without an annotator
        assert b"trajectories" in await asked.get("api/summary")
        assert str(files) not in json.dumps(shown)


async def test_nobody_else_is_served(files: Path) -> None:
    async with page(files) as asked:
        base = asked.url.rstrip("/").rsplit("/", 1)[0]
        for path in ("", "view.js", "api/state", "api/runs/0", "pictures/0/0", "api/summary"):
            async with asked.http.get(f"{base}/{'x' * 43}/{path}") as answer:
                assert answer.status == 403
            async with asked.http.get(asked.url + path, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
        async with asked.http.post(
            asked.url + "api/labels/0", json={"choice": "success"}, headers={"Origin": "http://x"}
        ) as answer:
            assert answer.status == 403
    assert (files / "l.jsonl").read_bytes() == b""


async def test_from_python(files: Path) -> None:
    stop, addresses = asyncio.Event(), list[OpenedView]()
    config = ViewConfig(trajectories=[files / "t.jsonl"], verdicts=[files / "v.jsonl"])
    serving_page = asyncio.create_task(view_async(config, stop=stop, opened=addresses.append))
    async with aiohttp.ClientSession() as http:
        while not addresses:
            await asyncio.sleep(0.01)
        asked = Page(http, addresses[0].url)
        while len((await asked.get("api/state"))["rows"]) < 3:
            await asyncio.sleep(0.01)
    stop.set()
    assert await serving_page == ViewResult(runs=3)
    assert prill.ViewConfig is ViewConfig


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"annotator": "ada"}, "give both or neither"),
        ({"blind": True}, "only for annotators"),
        ({"annotator": " ", "output": "l.jsonl"}, "expected a name"),
    ],
)
def test_options_that_depend_on_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        ViewConfig(trajectories=["t.jsonl"], **options)


async def test_no_such_file(files: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        await view_async(
            ViewConfig(trajectories=[files / "t.jsonl"], verdicts=[files / "no" / "v.jsonl"]),
            stop=asyncio.Event(),
        )
