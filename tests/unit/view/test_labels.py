"""Labels by hand: the file is right at every moment, the server lets nobody else in, nothing is
shown before its time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from prill.errors import InputError, UsageError
from prill.evaluators.agreement.sampling import draw_informative
from prill.io.joining import record_digest
from prill.io.store import encode, iter_trajectories, read_labels
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, Verdict
from prill.ui.serving import serving
from prill.ui.view.label_log import LabelLog
from prill.ui.view.run import ViewConfig, view
from prill.ui.view.session import LabelDecision, LabelSession
from tests.support.labelling import Client, asked, labelling

aiohttp = pytest.importorskip("aiohttp")


def label(
    id: str, success: bool | None, annotator: str | None = "me", source: str = "human", **more: Any
) -> LabelRecord:
    return LabelRecord(id=id, success=success, annotator=annotator, source=source, **more)


def write_trajectories(folder: Path, ids: Iterable[str] = "abc") -> Path:
    """Two steps and a final state each; the first screen is a picture, the second an HTML page that
    calls itself one.
    """
    Image.new("RGB", (4, 4)).save(folder / "good.png")
    (folder / "fake.png").write_text("<script>alert(1)</script>")
    with (folder / "t.jsonl").open("w") as file:
        for id in ids:
            steps = [
                {
                    "observation": {"screenshot": "good.png", "text": "page é"},
                    "action": {"kind": "click", "point": [0.5, 0.5]},
                },
                {"observation": {"screenshot": "fake.png"}, "action": {"kind": "stop"}},
            ]
            final = {"screenshot": "missing.png"}
            file.write(
                json.dumps(
                    {"id": id, "task": {"goal": f"goal {id}"}, "steps": steps, "final": final}
                )
                + "\n"
            )
    return folder / "t.jsonl"


# The file


def test_log_label_on_disk_before_close(tmp_path: Path) -> None:
    path = tmp_path / "new" / "l.jsonl"
    with LabelLog(path, "me") as log:
        log.put(label("a", True))
        log.put(label("b", True))
        assert path.read_bytes() == encode(label("a", True)) + encode(label("b", True))
        log.put(label("a", False))
        assert path.read_bytes() == encode(label("a", False)) + encode(label("b", True))
        log.put(label("c", None, undecided="unsure"))
        log.remove("b")
        assert list(read_labels(path)) == [label("a", False), label("c", None, undecided="unsure")]
    assert [file.name for file in path.parent.iterdir()] == ["l.jsonl"], "a copy was left behind"


def test_log_keeps_lines_of_others(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    oracle = b'{"source": "oracle",  "id": "a", "success": false, "more": [1, 2]}\n'
    anna = b'{"id": "a", "annotator": "anna", "success": true}\n'
    path.write_bytes(oracle + encode(label("a", True)) + anna)
    path.chmod(0o640)
    with LabelLog(path, "me") as log:
        assert log.mine == {"a": label("a", True)}
        assert log.others == [label("a", True, "anna")]
        log.put(label("a", False))
        log.put(label("b", True))
    assert path.read_bytes() == oracle + encode(label("a", False)) + anna + encode(label("b", True))
    assert path.stat().st_mode & 0o777 == 0o640


def test_log_clears_copy_of_killed_process(tmp_path: Path) -> None:
    with LabelLog(tmp_path / "l.jsonl", "me") as log:
        log.put(label("a", True))
    (tmp_path / ".l.jsonl.new").write_bytes(encode(label("a", False))[:20])
    with LabelLog(tmp_path / "l.jsonl", "me") as log:
        assert log.mine == {"a": label("a", True)}
        log.put(label("a", False))
    assert (tmp_path / "l.jsonl").read_bytes() == encode(label("a", False))
    assert [file.name for file in tmp_path.iterdir()] == ["l.jsonl"]


VERDICT = Verdict(
    id="a", success=True, score=0.9, reason="seen", evaluator=EvaluatorInfo("vlm", "1", "m")
)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"my diary\nwas here\n", "l.jsonl:1: not a label"),
        (b"my diary", "l.jsonl:1: not a label"),
        (encode(label("a", True)) + b'{"id": 3}\n', "l.jsonl:2: not a label"),
        (encode(VERDICT), "it is a judge's verdict"),
    ],
)
def test_log_refuses_another_kind_of_file(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        LabelLog(path, "me")
    assert path.read_bytes() == content


def test_log_refuses_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with LabelLog(path, "me") as log:
        path.replace(tmp_path / "moved.jsonl")
        path.write_text("mine now\n")
        with pytest.raises(UsageError, match="another program has changed or replaced"):
            log.put(label("a", True))
        assert not log.mine
    assert path.read_text() == "mine now\n"


# The server


@contextmanager
def session(folder: Path) -> Iterator[LabelSession]:
    with labelling(write_trajectories(folder), folder / "l.jsonl") as page:
        assert page.session is not None
        yield page.session


@asynccontextmanager
async def sat(folder: Path) -> AsyncIterator[Client]:
    """A blind page on runs that a judge and others have judged."""
    earlier = [
        label("a", False, "anna", note="no"),
        label("b", True, "anna"),
        label("a", True, None, "oracle"),
    ]
    runs, labels = write_trajectories(folder), folder / "l.jsonl"
    with labelling(runs, labels, earlier=earlier, verdicts=[VERDICT]) as page:
        async with asked(page) as site:
            yield site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Client]:
    async with sat(tmp_path) as site:
        yield site


SUCCESS = {
    "choice": "success",
    "steps": [{"index": 1, "label": "reached"}, {"index": 0, "label": "towards"}],
    "note": " good ",
}


@pytest.mark.parametrize(
    "path",
    [
        "pictures/0/../../../t.jsonl",
        "pictures/%2e%2e/%2e%2e/t.jsonl",
        "pictures/0/..%2f..%2ft.jsonl",
        "pictures/0/good.png",
        "pictures/-1/0",
        "pictures/3/0",
        "pictures/0/99999999999999999999",
        "pictures//etc/passwd",
        "texts/0/9",
        "page.py",
        "view.css/..",
        "api/labels/3",
        "api/runs/3",
        "api/labels/0x1",
    ],
)
async def test_nothing_but_the_given_files_is_served(site: Client, path: str) -> None:
    from yarl import URL

    async with site.http.get(URL(site.url + path, encoded=True)) as answer:
        assert answer.status in (403, 404), "403 where the dots have climbed over the token"
        assert b"goal" not in await answer.read()


@pytest.mark.parametrize(
    "rest",
    [
        b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"\xff\x00 HTTP/1.1\r\n\r\n",
        b" HTTP/9.9\r\n\r\n",
        b" HTTP/1.1\r\nno header\r\n\r\n",
        b" HTTP/1.1\r\nContent-Length: much\r\n\r\n",
        b" HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
    ],
)
async def test_token_of_a_malformed_request_is_not_logged(
    site: Client, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    host, _, path = site.url.removeprefix("http://").partition("/")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(b"GET /" + path.encode() + rest)
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    assert path.strip("/") not in caplog.text and "Traceback" not in caplog.text


async def test_pictures_by_their_content(site: Client, tmp_path: Path) -> None:
    assert await site.get("pictures/0/0") == (200, (tmp_path / "good.png").read_bytes())
    assert (await site.get("pictures/0/1"))[0] == 415, "a page that calls itself a picture"
    assert (await site.get("pictures/0/2"))[0] == 404
    assert await site.get("texts/0/0") == (200, "page é".encode())


async def test_headers_forbid_scripts(site: Client) -> None:
    for path in ("", "view.js", "api/state", "pictures/0/0", "nothing"):
        async with site.http.get(site.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_others_neither_read_nor_write(site: Client, tmp_path: Path) -> None:
    """Another site's page, a rebound name, a wrong token: refused on every path."""
    base, token = site.url.rstrip("/").rsplit("/", 1)
    port = base.rpartition(":")[2]
    paths = ["", "view.js", "view.css", "api/state", "api/search?q=x", "api/summary"]
    paths += ["api/runs/0", "api/calls/0/0", "api/labels/0", "pictures/0/0", "texts/0/0"]
    hosts = ["attacker.invalid", f"attacker.invalid:{port}", f"127.0.0.1.invalid:{port}"]
    for path in paths:
        for host in (*hosts, "127.0.0.1:1"):
            assert (await site.get(path, Host=host))[0] == 403, (path, host)
        for other in ("", "x", token[:-1], token + "x", token.swapcase(), "%2e%2e", f"%00{token}"):
            async with site.http.get(f"{base}/{other}/{path}") as answer:
                assert answer.status == 403, (path, other)
    refused: list[dict[str, str]] = [
        {"Origin": "http://attacker.invalid"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port}"},
        {"Origin": base.replace("http:", "https:")},
        {"Origin": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Host": f"attacker.invalid:{port}"},
    ]
    for path in ("api/labels/0", "api/undo"):
        for headers in refused:
            status, _ = await site.post(path, {"choice": "success"}, **headers)
            assert status in (403, 415), headers
    url = f"{site.url}api/labels/0"
    async with site.http.options(url, headers={"Origin": "http://attacker.invalid"}) as answer:
        assert answer.status in (403, 415)
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_label_is_on_disk_at_the_answer(site: Client, tmp_path: Path) -> None:
    status, change = await site.post("api/labels/0", SUCCESS)
    steps = (StepLabel(0, "towards"), StepLabel(1, "reached"))
    run = next(iter(iter_trajectories(tmp_path / "t.jsonl")))
    made = label("a", True, note="good", steps=steps, record=record_digest(run))
    assert list(read_labels(tmp_path / "l.jsonl")) == [made]
    assert (status, change["mine"]["choice"], change["version"]) == (200, "success", 1)
    assert (await site.post("api/labels/0", {**SUCCESS, "side_effects": True}))[0] == 200
    assert next(read_labels(tmp_path / "l.jsonl")).side_effects is True
    for choice, success, undecided in (
        ("failure", False, None),
        ("not_executable", None, "not_executable"),
        ("unsure", None, "unsure"),
    ):
        assert (await site.post("api/labels/0", {"choice": choice}))[0] == 200
        assert list(read_labels(tmp_path / "l.jsonl")) == [
            label("a", success, undecided=undecided, record=made.record)
        ], "replaced, not added"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choice": "maybe"},
        [],
        {"choice": "success", "steps": [{"index": 2, "label": "towards"}]},
        {"choice": "success", "steps": [{"index": -1, "label": "towards"}]},
        {"choice": "success", "steps": [{"index": 0, "label": "great"}]},
        {"choice": "success", "steps": [{"index": 0, "label": "away"}] * 2},
    ],
)
async def test_what_is_no_decision_is_refused(site: Client, body: object, tmp_path: Path) -> None:
    status, answer = await site.post("api/labels/0", body)
    assert status == 400
    assert answer["error"].startswith("not a decision")
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_unwritten_label_is_none(site: Client, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").unlink()
    status, answer = await site.post("api/labels/0", SUCCESS)
    assert status == 507
    assert "cannot be written" in answer["error"]
    assert (await site.json("api/labels/0"))["mine"] is None


async def state(site: Client) -> Any:
    return await site.json("api/state")


def names(run: Any) -> list[tuple[str, bool, str | None]]:
    return [(one["annotator"], one["success"], one["note"]) for one in run["labels"]]


async def test_others_shown_after_the_label_only(site: Client) -> None:
    assert await site.json("api/search?q=seen") == [], "a judge's reason"
    before = await site.json("api/runs/0")
    assert (before["verdicts"], before["labels"]) == ([None], [])
    rows = (await state(site))["rows"]
    assert [(one["row"]["truth"], one["row"]["outcomes"]) for one in rows] == [("", [""])] * 3
    assert (await site.get("api/calls/0/0"))[0] == (await site.get("api/summary"))[0] == 403
    await site.post("api/labels/0", SUCCESS)
    after = await site.json("api/runs/0")
    assert names(after) == [("anna", False, "no"), ("me", True, "good")]
    assert [verdict["reason"] for verdict in after["verdicts"]] == ["seen"]
    rows = [
        (one["mine"], one["row"]["truth"], one["row"]["outcomes"])
        for one in (await state(site))["rows"]
    ]
    assert rows == [("success", "success", ["success"]), (None, "", [""]), (None, "", [""])]
    assert (await site.json("api/runs/1"))["labels"] == []
    await site.post("api/undo", {})
    undone = await site.json("api/runs/0")
    assert (undone["labels"], undone["verdicts"]) == ([], [None]), "it has no label any more"


async def test_undo_restores_the_former_label(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with session(tmp_path) as sitting:
        assert await sitting.undo() is None
        await sitting.put(0, LabelDecision(choice="success", note="first"))
        await sitting.put(1, LabelDecision(choice="failure"))
        kept = path.read_bytes()
        await sitting.put(0, LabelDecision(choice="failure", note="second"))
        undone = await sitting.undo()
        assert undone is not None and undone.number == 0
        assert undone.undone == LabelDecision(choice="failure", note="second")
        assert sitting.decision(0).mine == LabelDecision(choice="success", note="first")
        assert path.read_bytes() == kept
        await sitting.undo()
        await sitting.undo()
        assert path.read_bytes() == b""
        assert (sitting.written, sitting.done) == (0, 0)


async def test_repeated_request_is_saved_once(site: Client, tmp_path: Path) -> None:
    """A page whose answer was lost asks again; one that shows an older label is told, whatever it
    wants to do.
    """
    for _ in range(2):
        status, change = await site.post("api/labels/0", {**SUCCESS, "version": 0})
        assert (status, change["version"]) == (200, 1)
    status, refused = await site.post("api/labels/0", {"choice": "failure", "version": 0})
    assert (status, refused) == (
        409,
        {"error": "It was saved as success on another page meanwhile."},
    )
    assert (await site.post("api/labels/0", {"choice": "failure", "version": 1}))[0] == 200
    assert (await site.post("api/undo", {"version": 1}))[0] == 409, "a newer label has replaced it"
    assert (await site.post("api/undo", {"version": 2}))[1]["undone"]["choice"] == "failure"
    assert (await site.json("api/labels/0"))["mine"]["choice"] == "success"
    assert (await site.post("api/undo", {"version": 2})) == (200, None)
    assert (await site.post("api/undo", {"version": 1}))[1]["number"] == 0
    assert (await site.json("api/labels/0"))["mine"] is None
    status, refused = await site.post("api/labels/0", {"choice": "failure", "version": 1})
    assert (status, refused) == (409, {"error": "It was undone on another page meanwhile."})
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_taken_port_is_a_clear_error(site: Client, tmp_path: Path) -> None:
    with labelling(tmp_path / "t.jsonl", tmp_path / "other.jsonl") as page:
        for port in (int(site.base.rpartition(":")[2]), 99999):
            with pytest.raises(UsageError, match=f"port {port} cannot be used"):
                async with serving(page, port):
                    pass


# Drawn by an order


class Drawn(NamedTuple):
    """A session that was opened and closed at once."""

    ids: list[str]
    labels: list[LabelRecord]


async def drawn(path: Path, *labelled: int, **options: Any) -> Drawn:
    """Opens `prill view` with an order, and labels some of the runs."""
    labels = path.with_name("l.jsonl")
    config = ViewConfig(trajectories=[path], output=labels, annotator="me", blind=True, **options)
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    page = asyncio.create_task(view.run_async(config, stop=stop, opened=opened.set_result))
    await asyncio.wait([page, opened], return_when=asyncio.FIRST_COMPLETED)
    if page.done():
        page.result()
    url = opened.result()
    async with aiohttp.ClientSession() as http:
        site = Client(http, url)
        while (found := await site.json("api/state"))["read"] < 1:
            await asyncio.sleep(0.01)
        for number in labelled:
            assert (await site.post(f"api/labels/{number}", SUCCESS))[0] == 200
        for one in found["rows"]:  # search and page know the same numbers
            hits = await site.json(f"api/search?q={one['row']['id']}")
            assert hits == [one["number"]]
    stop.set()
    await page
    return Drawn(
        [one["row"]["id"] for one in found["rows"]], [*read_labels(labels)] if labelled else []
    )


async def test_random_order_by_seed(tmp_path: Path) -> None:
    ids = [f"t{i}t" for i in range(30)]
    path = write_trajectories(tmp_path, ids[:20])
    before = (await drawn(path, order="random", seed=1)).ids
    assert sorted(before) == sorted(ids[:20])
    assert before == (await drawn(path, order="random", seed=1)).ids
    assert before != (await drawn(path, order="random", seed=2)).ids
    assert (await drawn(path, order="random", seed=1, limit=4)).ids == before[:4]
    assert (await drawn(path, limit=4)).ids == ids[:4]
    after = (await drawn(write_trajectories(tmp_path, ids), order="random", seed=1)).ids
    assert [id for id in after if id in before] == before


async def test_informative_labels_keep_their_chance(tmp_path: Path) -> None:
    scores = {f"r{n}": 0.5 if n < 2 else 1.0 for n in range(8)}
    path = write_trajectories(tmp_path, scores)
    judge = EvaluatorInfo("j", "1")
    (tmp_path / "v.jsonl").write_bytes(
        b"".join(
            encode(Verdict(id=id, success=True, score=score, evaluator=judge))
            for id, score in scores.items()
        )
    )
    options: dict[str, Any] = {"order": "informative", "verdicts": [tmp_path / "v.jsonl"]}
    made = await drawn(path, 0, limit=4, **options)
    chances = draw_informative({id: f"goal {id}" for id in scores}, scores, 4, 0)
    assert made.ids == list(chances)
    assert [one.inclusion for one in made.labels] == [chances[made.ids[0]]]
    assert b"inclusion" not in encode(label("a", True)), "absent where nobody drew"
    with pytest.raises(UsageError, match="was drawn with a different probability"):
        await drawn(path, limit=3, **options)
    with pytest.raises(UsageError, match="needs limit and verdicts"):
        await drawn(path, **options)


async def test_run_that_was_replaced_is_not_labelled(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "ab")
    with labelling(path, tmp_path / "l.jsonl") as page:
        write_trajectories(tmp_path, "ba")
        with pytest.raises(InputError, match="has changed since it was read"):
            page.library[0]
