"""Labels by hand: the file is right at every moment, the server lets nobody else in, nothing is
shown before its time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.errors import InputError, UsageError
from prill.io.store import encode, read_labels
from prill.runs.annotate import AnnotateConfig, annotate
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, Verdict
from prill.ui.serving import serving
from prill.ui.view.label_log import LabelLog
from prill.ui.view.questions import PairAgreement, pair_agreement
from prill.ui.view.queue import keep_queue
from prill.ui.view.session import LabelDecision, LabelSession
from prill.ui.view.site import Reveal, ViewSite
from tests.support.labelling import labelling, read_library

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


def test_log_newest_own_label_counts(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(
        encode(label("a", True)) + encode(label("b", True)) + encode(label("a", False))
    )
    with LabelLog(path, "me") as log:
        assert log.mine["a"].success is False
        log.put(label("a", None))
    assert path.read_bytes() == encode(label("a", None)) + encode(label("b", True))


@pytest.mark.parametrize("again", [False, True])
def test_log_second_writer_is_refused(tmp_path: Path, again: bool) -> None:
    path = tmp_path / "l.jsonl"
    with LabelLog(path, "me") as log:
        log.put(label("a", True))
        if again:
            log.put(label("a", False))
        with pytest.raises(UsageError, match="another process is writing"):
            LabelLog(path, "anna")
    LabelLog(path, "anna").close()


def test_log_clears_copy_of_killed_process(tmp_path: Path) -> None:
    with LabelLog(tmp_path / "l.jsonl", "me") as log:
        log.put(label("a", True))
    (tmp_path / ".l.jsonl.new").write_bytes(encode(label("a", False))[:20])
    with LabelLog(tmp_path / "l.jsonl", "me") as log:
        assert log.mine == {"a": label("a", True)}
        log.put(label("a", False))
    assert (tmp_path / "l.jsonl").read_bytes() == encode(label("a", False))
    assert [file.name for file in tmp_path.iterdir()] == ["l.jsonl"]


def test_log_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_bytes(encode(label("a", True)))
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    with LabelLog(tmp_path / "link.jsonl", "me") as log:
        log.put(label("a", False))
    assert (tmp_path / "link.jsonl").is_symlink()
    assert list(read_labels(tmp_path / "real.jsonl")) == [label("a", False)]


def test_log_cuts_a_torn_last_line(tmp_path: Path) -> None:
    for ending in (b'{"id":"b","succ', b"\xff"):
        path = tmp_path / "l.jsonl"
        path.write_bytes(encode(label("a", True)) + ending)
        with LabelLog(path, "me") as log:
            log.put(label("c", True))
        assert [record.id for record in read_labels(path)] == ["a", "c"]
    path.write_bytes(encode(label("a", True)).rstrip())
    with LabelLog(path, "me") as log:
        log.put(label("c", True))
    assert [record.id for record in read_labels(path)] == ["a", "c"]


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


# What is labelled


def queue(path: Path, **options: Any) -> list[str]:
    with closing(read_library([path])) as library:
        keep_queue(library, **options)
        assert [library[i].id for i in range(len(library))] == library.ids
        return library.ids


def test_queue_leaves_out_and_names_broken_lines(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "ab")
    path.write_text(
        path.read_text() + '{"id": "x"}\nnonsense\n' + path.read_text().splitlines()[0] + "\n{"
    )
    with closing(read_library([path])) as library:
        left_out = library.left_out()
        keep_queue(library)
        assert library.ids == ["a", "b"] and library.places == {"a": 0, "b": 1}
    assert [message.split(":")[1] for message in left_out[:3]] == ["3", "4", "5"]
    assert "missing field `task`" in left_out[0]
    assert "duplicate id 'a'" in left_out[2]
    assert "incomplete" in left_out[3]


def test_queue_random_order_by_seed(tmp_path: Path) -> None:
    ids = [f"t{i}" for i in range(40)]
    path = write_trajectories(tmp_path, ids[:30])
    before = queue(path, order="random", seed=1)
    assert before == queue(path, order="random", seed=1) != queue(path, order="random", seed=2)
    assert sorted(before) == sorted(ids[:30])
    assert queue(path, order="random", seed=1, limit=4) == before[:4]
    assert queue(path, limit=4) == ids[:4]
    after = queue(write_trajectories(tmp_path, ids), order="random", seed=1)
    assert [id for id in after if id in before] == before


def test_queue_is_searched_by_its_own_numbers(tmp_path: Path) -> None:
    with closing(read_library([write_trajectories(tmp_path, ["t0", "t1", "t2", "t3"])])) as library:
        keep_queue(library, order="random", seed=1, limit=2)
        for number, id in enumerate(library.ids):
            assert library.search(id, reasons=True) == {number}


def test_run_that_was_replaced_is_not_labelled(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "ab")
    with closing(read_library([path])) as library:
        keep_queue(library)
        write_trajectories(tmp_path, "ba")
        with pytest.raises(InputError, match="has changed since it was read"):
            library[0]


# Agreement


def test_pair_agreement_by_hand() -> None:
    # mine x theirs: 4 both success, 3 both failure, 2 only mine, 1 only theirs. Share 0.7; by
    # chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5; kappa (0.7 - 0.5) / (1 - 0.5) = 0.4.
    cells = (
        [(True, True)] * 4
        + [(False, False)] * 3
        + [(True, False)] * 2
        + [(False, True), (None, True), (True, None)]
    )
    mine = {f"t{i}": label(f"t{i}", a) for i, (a, _) in enumerate(cells)} | {
        "only me": label("only me", True)
    }
    theirs = {f"t{i}": label(f"t{i}", b) for i, (_, b) in enumerate(cells)} | {
        "only they": label("only they", True)
    }
    agreement = pair_agreement("anna", mine, theirs)
    assert agreement == PairAgreement(
        annotator="anna", common=10, agreed=7, undecided=2, kappa=pytest.approx(0.4)
    )


@pytest.mark.parametrize("cells", [[], [(True, True)] * 3, [(None, True)]])
def test_pair_kappa_can_be_undefined(cells: list[tuple[Any, Any]]) -> None:
    mine, theirs = (
        {f"t{i}": label(f"t{i}", cell[k]) for i, cell in enumerate(cells)} for k in (0, 1)
    )
    assert pair_agreement("anna", mine, theirs).kappa is None


# The server


class Site:
    """A session that is being served, and a client that asks as the page does unless told
    otherwise.
    """

    def __init__(self, page: ViewSite, url: str, http: aiohttp.ClientSession) -> None:
        assert page.session is not None
        self.page, self.session = page, page.session
        self.url = url
        self.base = url.rsplit("/", 2)[0]
        self.http = http

    async def get(self, path: str = "", **options: Any) -> tuple[int, bytes]:
        async with self.http.get(self.url + path, **options) as answer:
            return answer.status, await answer.read()

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json", "Origin": self.base, **headers}
        async with self.http.post(self.url + path, data=json.dumps(body), headers=sent) as answer:
            text = await answer.text()
            return answer.status, json.loads(
                text
            ) if answer.content_type == "application/json" else text

    async def json(self, path: str) -> Any:
        status, body = await self.get(path)
        assert status == 200
        return json.loads(body)


@contextmanager
def sit(folder: Path, reveal: Reveal = "after") -> Iterator[ViewSite]:
    earlier = [
        label("a", False, "anna", note="no"),
        label("b", True, "anna"),
        label("a", True, None, "oracle"),
    ]
    runs, labels = write_trajectories(folder), folder / "l.jsonl"
    with labelling(runs, labels, earlier=earlier, verdicts=[VERDICT], reveal=reveal) as site:
        yield site


@contextmanager
def session(folder: Path) -> Iterator[LabelSession]:
    with sit(folder) as page:
        assert page.session is not None
        yield page.session


@asynccontextmanager
async def sat(folder: Path, reveal: Reveal = "after") -> AsyncIterator[Site]:
    with sit(folder, reveal) as page:
        async with serving(page) as url, aiohttp.ClientSession() as http:
            yield Site(page, url, http)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with sat(tmp_path) as site:
        yield site


SUCCESS = {
    "choice": "success",
    "steps": [{"index": 1, "label": "reached"}, {"index": 0, "label": "towards"}],
    "note": " good ",
}


async def test_server_needs_the_token(site: Site) -> None:
    token = site.url.rsplit("/", 2)[1]
    wrong = [
        "/",
        "",
        "/favicon.ico",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"/x/{token}/",
        f"//{token}/",
        f"/?token={token}",
    ]
    for path in (*wrong, "/api/state", f"/{'é' * 3}/"):
        async with site.http.get(site.base + path) as answer:
            assert answer.status == 403, path
            assert token not in await answer.text()
    async with site.http.post(
        f"{site.base}/wrong/api/labels/0", json=SUCCESS, headers={"Origin": site.base}
    ) as answer:
        assert answer.status == 403
    assert (await site.get())[0] == 200


async def test_server_listens_on_loopback_only(site: Site) -> None:
    assert site.url.startswith("http://127.0.0.1:")
    port = int(site.base.rpartition(":")[2])
    sockets = Path("/proc/net/tcp")
    if not sockets.exists():
        pytest.skip("this system does not list its sockets in /proc")
    listening = {
        line.split()[1] for line in sockets.read_text().splitlines()[1:] if line.split()[3] == "0A"
    }
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


async def test_server_refuses_other_host_names(site: Site) -> None:
    port = site.base.rpartition(":")[2]
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{port}",
        "",
    ):
        assert (await site.get(headers={"Host": host}))[0] == 403, host
    assert (await site.get(headers={"Host": f"localhost:{port}"}))[0] == 200


async def test_server_writes_json_of_its_page_only(site: Site) -> None:
    assert (await site.post("api/labels/0", SUCCESS, **{"Content-Type": "text/plain"}))[0] == 415
    assert (await site.post("api/labels/0", SUCCESS, Origin="http://evil.example"))[0] == 403
    assert (await site.post("api/labels/0", SUCCESS, Origin="null"))[0] == 403
    async with site.http.post(site.url + "api/labels/0", json=SUCCESS) as answer:
        assert answer.status == 403, "a request without an origin"
    assert (await site.get("api/undo"))[0] == 405
    assert not site.session.log.mine


@pytest.mark.parametrize(
    "path",
    [
        "pictures/0/../../../t.jsonl",
        "pictures/%2e%2e/%2e%2e/t.jsonl",
        "pictures/0/..%2f..%2ft.jsonl",
        "pictures/good.png",
        "pictures/0/good.png",
        "pictures/-1/0",
        "pictures/3/0",
        "pictures/0/3",
        "pictures/0/99999999999999999999",
        "pictures//etc/passwd",
        "texts/0/9",
        "page.py",
        "server.py",
        "view.css/..",
        "api/labels/3",
        "api/runs/3",
        "api/labels/0x1",
    ],
)
async def test_server_unknown_place_not_found(site: Site, path: str) -> None:
    from yarl import URL

    async with site.http.get(URL(site.url + path, encoded=True)) as answer:
        assert answer.status in (403, 404), "403 where the dots have climbed over the token"
        assert b"goal" not in await answer.read()


async def test_server_pictures_by_their_content(site: Site, tmp_path: Path) -> None:
    async with site.http.get(site.url + "pictures/0/0") as answer:
        assert (answer.status, answer.content_type) == (200, "image/png")
        assert await answer.read() == (tmp_path / "good.png").read_bytes()
    assert (await site.get("pictures/0/1"))[0] == 415, "a page that calls itself a picture"
    assert (await site.get("pictures/0/2"))[0] == 404
    assert await site.get("texts/0/0") == (200, "page é".encode())


async def test_server_headers_forbid_scripts(site: Site) -> None:
    for path in ("", "view.js", "api/state", "pictures/0/0", "nothing"):
        async with site.http.get(site.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert (
                "default-src 'none'" in policy
                and "frame-ancestors 'none'" in policy
                and "unsafe" not in policy
            )
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_server_label_on_disk_at_answer(site: Site, tmp_path: Path) -> None:
    status, change = await site.post("api/labels/0", SUCCESS)
    steps = (StepLabel(0, "towards"), StepLabel(1, "reached"))
    assert list(read_labels(tmp_path / "l.jsonl")) == [label("a", True, note="good", steps=steps)]
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
            label("a", success, undecided=undecided)
        ], "replaced, not added"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choice": "maybe"},
        {"choice": None},
        [],
        {"choice": "success", "steps": [{"index": 2, "label": "towards"}]},
        {"choice": "success", "steps": [{"index": -1, "label": "towards"}]},
        {"choice": "success", "steps": [{"index": 0, "label": "great"}]},
        {
            "choice": "success",
            "steps": [{"index": 0, "label": "away"}, {"index": 0, "label": "away"}],
        },
    ],
)
async def test_server_refuses_what_is_no_decision(site: Site, body: object, tmp_path: Path) -> None:
    status, answer = await site.post("api/labels/0", body)
    assert status == 400
    assert answer["error"].startswith("not a decision")
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_server_unwritten_label_is_none(site: Site, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").unlink()
    status, answer = await site.post("api/labels/0", SUCCESS)
    assert status == 507
    assert "cannot be written" in answer["error"]
    assert (await site.json("api/labels/0"))["mine"] is None
    assert site.session.written == 0


async def state(site: Site) -> Any:
    return await site.json("api/state")


def names(run: Any) -> list[tuple[str, bool, str | None]]:
    return [(one["annotator"], one["success"], one["note"]) for one in run["labels"]]


async def test_others_shown_after_the_label_only(site: Site) -> None:
    before = await site.json("api/runs/0")
    assert (before["verdicts"], before["labels"], before["claims"]) == ([None], [], [])
    assert [pair["common"] for pair in (await state(site))["pairs"]] == [0]
    rows = (await state(site))["rows"]
    assert [(one["row"]["truth"], one["row"]["outcomes"]) for one in rows] == [("", [""])] * 3
    assert (await site.get("api/calls/0/0"))[0] == (await site.get("api/summary"))[0] == 403
    await site.post("api/labels/0", SUCCESS)
    after = await site.json("api/runs/0")
    assert names(after) == [("anna", False, "no"), ("me", True, "good")]
    assert [verdict["reason"] for verdict in after["verdicts"]] == ["seen"]
    told = await state(site)
    assert told["pairs"] == [
        {
            "annotator": "anna",
            "common": 1,
            "agreed": 0,
            "undecided": 0,
            "kappa": 0.0,
            "question": "",
        }
    ]
    rows = [(one["mine"], one["row"]["truth"], one["row"]["outcomes"]) for one in told["rows"]]
    assert rows == [("success", "success", ["success"]), (None, "", [""]), (None, "", [""])]
    assert (await site.json("api/runs/1"))["labels"] == []
    await site.post("api/undo", {})
    undone = await site.json("api/runs/0")
    assert (undone["labels"], undone["verdicts"]) == ([], [None]), "it has no label any more"


async def test_oracle_labels_are_never_shown(site: Site) -> None:
    await site.post("api/labels/0", SUCCESS)
    assert {one["source"] for one in (await site.json("api/runs/0"))["labels"]} == {"human"}
    assert [pair["annotator"] for pair in (await state(site))["pairs"]] == ["anna"]


async def test_blind_and_show_verdicts_options(tmp_path: Path) -> None:
    async with sat(tmp_path, "never") as blind:
        await blind.post("api/labels/0", SUCCESS)
        run, told = await blind.json("api/runs/0"), await state(blind)
        assert names(run) == [("me", True, "good")]
        assert (run["verdicts"], told["pairs"], told["judges"]) == ([], [], [])
        assert [one["row"]["outcomes"] for one in told["rows"]] == [[]] * 3
        assert [pair.common for pair in blind.session.pairs] == [1], "for the summary at the end"
    (tmp_path / "l.jsonl").unlink()
    async with sat(tmp_path, "verdicts") as swayed:
        run = await swayed.json("api/runs/0")
        assert [verdict["reason"] for verdict in run["verdicts"]] == ["seen"]
        assert run["labels"] == []


async def test_labels_of_others_are_followed(site: Site, tmp_path: Path) -> None:
    """Two people who label at once, each into a file, see their agreement grow."""
    await site.post("api/labels/1", {"choice": "failure"})
    with (tmp_path / "l.earlier.jsonl").open("ab") as theirs:
        theirs.write(encode(label("b", False, "bob")))
    for _ in site.page.library.refresh():
        pass
    pairs = {one["annotator"]: one["agreed"] for one in (await state(site))["pairs"]}
    assert pairs == {"anna": 0, "bob": 1}


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


async def test_repeated_request_is_saved_once(site: Site, tmp_path: Path) -> None:
    """A page whose answer was lost asks again; one that shows an older label is told, whatever it
    wants to do.
    """
    for _ in range(2):
        status, change = await site.post("api/labels/0", {**SUCCESS, "version": 0})
        assert (status, change["version"]) == (200, 1)
    assert site.session.written == 1
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
    assert (tmp_path / "l.jsonl").read_bytes() == b"" and site.session.written == 0


async def test_revised_counts_changes_after_reveal(site: Site) -> None:
    async def decide(number: int, choice: str, note: str = "") -> None:
        await site.post(f"api/labels/{number}", {"choice": choice, "note": note})
        await site.json(f"api/runs/{number}")

    await decide(0, "success")
    await decide(0, "success", "only the note")
    await decide(2, "success")
    await decide(2, "failure")
    assert site.session.revised == 0, "nobody else has said anything of the third"
    await site.post("api/undo", {})
    await decide(0, "failure")
    assert site.session.revised == 1


async def test_later_sitting_knows_what_is_labelled(tmp_path: Path) -> None:
    async with sat(tmp_path) as site:
        await site.post("api/labels/0", {"choice": "success"})
        await site.post("api/labels/2", {"choice": "success"})
    async with sat(tmp_path) as site:
        rows = (await state(site))["rows"]
        assert [one["mine"] for one in rows] == ["success", None, "success"]


async def test_taken_port_is_a_clear_error(site: Site, tmp_path: Path) -> None:
    port = int(site.base.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"port {port} cannot be used"):
        async with serving(site.page, port):
            pass
    with pytest.raises(UsageError, match="port 99999 cannot be used"):
        async with serving(site.page, 99999):
            pass


# Drawn by a judge's scores


async def test_informative_labels_keep_their_chance(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "abcdefgh")
    scores = {id: 0.5 if id in "ab" else 1.0 for id in "abcdefgh"}
    labels = tmp_path / "l.jsonl"
    with labelling(path, labels, order="informative", limit=4, scores=scores) as page:
        assert len(page.library) == 4 and page.session is not None
        await page.session.put(0, LabelDecision(choice="success"))
    (record,) = read_labels(labels)
    with closing(read_library([path])) as library:
        inclusion = keep_queue(library, order="informative", limit=4, scores=scores)
    assert set(inclusion) == set(library.ids) and record.inclusion == inclusion[record.id]
    assert b"inclusion" not in encode(label("a", True)), "absent where nobody drew"


def test_another_draw_does_not_continue_a_file(tmp_path: Path) -> None:
    path, labels = write_trajectories(tmp_path, "abcdefgh"), tmp_path / "l.jsonl"
    verdict = Verdict(id="a", success=True, score=0.6, evaluator=EvaluatorInfo("j", "1"))
    (tmp_path / "v.jsonl").write_bytes(encode(verdict))
    labels.write_bytes(encode(label("a", True)))
    config = AnnotateConfig(
        trajectories=[path],
        output=labels,
        annotator="me",
        order="informative",
        limit=8,
        verdicts=[tmp_path / "v.jsonl"],
    )
    with pytest.raises(UsageError, match="'a' was drawn with a different probability"):
        annotate(config)
    with pytest.raises(UsageError, match="needs limit and verdicts"):
        config.copy_with(limit=None)
