"""Labels by hand: the file is right at every moment, the server lets nobody else in, nothing is
shown before its time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.errors import UsageError
from prill.io.store import encode, read_labels
from prill.runs.annotate import AnnotateConfig, annotate
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, Verdict
from prill.ui.annotate.label_log import LabelLog
from prill.ui.annotate.session import (
    LabelDecision,
    LabelSession,
    PairAgreement,
    Reveal,
    pair_agreement,
)
from prill.ui.annotate.site import SessionSite
from prill.ui.annotate.worklist import Worklist
from prill.ui.serving import serving

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


def test_worklist_names_broken_lines(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "ab")
    path.write_text(
        path.read_text() + '{"id": "x"}\nnonsense\n' + path.read_text().splitlines()[0] + "\n"
    )
    worklist = Worklist([path])
    assert worklist.ids == ["a", "b"]
    assert [line.place.rpartition(":")[2] for line in worklist.broken] == ["3", "4", "5"]
    assert "missing field `task`" in worklist.broken[0].message
    assert "duplicate id 'a'" in worklist.broken[2].message


def test_worklist_random_order_by_seed(tmp_path: Path) -> None:
    ids = [f"t{i}" for i in range(40)]
    path = write_trajectories(tmp_path, ids[:30])
    before = Worklist([path], order="random", seed=1)
    assert (
        before.ids
        == Worklist([path], order="random", seed=1).ids
        != Worklist([path], order="random", seed=2).ids
    )
    assert sorted(before.ids) == sorted(ids[:30])
    assert [before[i].id for i in range(30)] == before.ids
    assert Worklist([path], order="random", seed=1, limit=4).ids == before.ids[:4]
    assert Worklist([path], limit=4).ids == ids[:4]
    after = Worklist([write_trajectories(tmp_path, ids)], order="random", seed=1)
    assert [id for id in after.ids if id in before.ids] == before.ids


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

    def __init__(self, session: LabelSession, url: str, http: aiohttp.ClientSession) -> None:
        self.session = session
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


def sit(folder: Path, reveal: Reveal = "after") -> LabelSession:
    earlier = [
        label("a", False, "anna", note="no"),
        label("b", True, "anna"),
        label("a", True, None, "oracle"),
    ]
    log = LabelLog(folder / "l.jsonl", "me")
    return LabelSession(
        Worklist([write_trajectories(folder)]),
        log,
        earlier=earlier,
        verdicts=[VERDICT],
        reveal=reveal,
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    session = sit(tmp_path)
    with session.log:
        async with serving(SessionSite(session)) as url, aiohttp.ClientSession() as http:
            yield Site(session, url, http)


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
    for path in (*wrong, "/api/overview", f"/{'é' * 3}/"):
        async with site.http.get(site.base + path) as answer:
            assert answer.status == 403, path
            assert token not in await answer.text()
    async with site.http.post(
        f"{site.base}/wrong/api/cards/0", json=SUCCESS, headers={"Origin": site.base}
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
    assert (await site.post("api/cards/0", SUCCESS, **{"Content-Type": "text/plain"}))[0] == 415
    assert (await site.post("api/cards/0", SUCCESS, Origin="http://evil.example"))[0] == 403
    assert (await site.post("api/cards/0", SUCCESS, Origin="null"))[0] == 403
    async with site.http.post(site.url + "api/cards/0", json=SUCCESS) as answer:
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
        "page.css/..",
        "api/cards/3",
        "api/cards/0x1",
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
    for path in ("", "page.js", "api/overview", "pictures/0/0", "nothing"):
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
    status, change = await site.post("api/cards/0", SUCCESS)
    steps = (StepLabel(0, "towards"), StepLabel(1, "reached"))
    assert list(read_labels(tmp_path / "l.jsonl")) == [label("a", True, note="good", steps=steps)]
    assert (status, change["next"]) == (200, 1)
    for choice, success, undecided in (
        ("failure", False, None),
        ("not_executable", None, "not_executable"),
        ("unsure", None, "unsure"),
    ):
        assert (await site.post("api/cards/0", {"choice": choice}))[0] == 200
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
    status, answer = await site.post("api/cards/0", body)
    assert status == 400
    assert answer["error"].startswith("not a decision")
    assert (tmp_path / "l.jsonl").read_bytes() == b""


async def test_server_unwritten_label_is_none(site: Site, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").unlink()
    status, answer = await site.post("api/cards/0", SUCCESS)
    assert status == 507
    assert "cannot be written" in answer["error"]
    assert (await site.json("api/cards/0"))["mine"] is None
    assert site.session.written == 0


async def test_others_shown_after_the_label_only(site: Site) -> None:
    before = await site.json("api/cards/0")
    assert (before["others"], before["verdicts"]) == (None, None)
    assert [pair["common"] for pair in (await site.json("api/overview"))["pairs"]] == [0]
    _, change = await site.post("api/cards/0", SUCCESS)
    assert [
        (other["annotator"], other["success"], other["note"]) for other in change["card"]["others"]
    ] == [("anna", False, "no")]
    assert [verdict["reason"] for verdict in change["card"]["verdicts"]] == ["seen"]
    assert change["pairs"] == [
        {"annotator": "anna", "common": 1, "agreed": 0, "undecided": 0, "kappa": 0.0}
    ]
    assert (await site.json("api/cards/1"))["others"] is None
    _, undone = await site.post("api/undo", {})
    assert (undone["card"]["others"], undone["card"]["verdicts"]) == (None, None), (
        "it has no label any more"
    )


async def test_oracle_labels_are_never_shown(site: Site) -> None:
    _, change = await site.post("api/cards/0", SUCCESS)
    assert all(other["source"] == "human" for other in change["card"]["others"])
    assert [pair["annotator"] for pair in change["pairs"]] == ["anna"]


async def test_blind_and_show_verdicts_options(tmp_path: Path) -> None:
    blind = sit(tmp_path, "never")
    with blind.log:
        change = await blind.save(0, LabelDecision(choice="success"))
        assert (change.card.others, change.card.verdicts, change.pairs, blind.overview().pairs) == (
            None,
            None,
            None,
            None,
        )
        assert [pair.common for pair in blind.pairs] == [1], "for the summary at the end"
        await blind.undo()
    session = sit(tmp_path, "before")
    with session.log:
        assert session.card(0).verdicts == (VERDICT,)
        assert session.card(0).others is None


async def test_undo_restores_the_former_label(tmp_path: Path) -> None:
    session = sit(tmp_path)
    path = tmp_path / "l.jsonl"
    with session.log:
        assert await session.undo() is None
        await session.save(0, LabelDecision(choice="success", note="first"))
        await session.save(1, LabelDecision(choice="failure"))
        kept = path.read_bytes()
        await session.save(0, LabelDecision(choice="failure", note="second"))
        undone = await session.undo()
        assert undone is not None and undone.card.index == 0
        assert undone.undone == LabelDecision(choice="failure", note="second")
        assert undone.card.mine == LabelDecision(choice="success", note="first")
        assert path.read_bytes() == kept
        await session.undo()
        await session.undo()
        assert path.read_bytes() == b""
        assert (session.written, session.done) == (0, 0)


async def test_repeated_request_is_saved_once(site: Site, tmp_path: Path) -> None:
    """A page whose answer was lost asks again; one that shows an older label is told, whatever it
    wants to do.
    """
    for _ in range(2):
        status, change = await site.post("api/cards/0", {**SUCCESS, "version": 0})
        assert (status, change["card"]["version"]) == (200, 1)
    assert site.session.written == 1
    status, refused = await site.post("api/cards/0", {"choice": "failure", "version": 0})
    assert (status, refused) == (
        409,
        {"error": "It was saved as success on another page meanwhile."},
    )
    assert (await site.post("api/cards/0", {"choice": "failure", "version": 1}))[0] == 200
    assert (await site.post("api/undo", {"version": 1}))[0] == 409, "a newer label has replaced it"
    assert (await site.post("api/undo", {"version": 2}))[1]["card"]["mine"]["choice"] == "success"
    assert (await site.post("api/undo", {"version": 2})) == (200, None)
    assert (await site.post("api/undo", {"version": 1}))[1]["card"]["mine"] is None
    status, refused = await site.post("api/cards/0", {"choice": "failure", "version": 1})
    assert (status, refused) == (409, {"error": "It was taken back on another page meanwhile."})
    assert (tmp_path / "l.jsonl").read_bytes() == b"" and site.session.written == 0


async def test_revised_counts_changes_after_reveal(tmp_path: Path) -> None:
    session = sit(tmp_path)
    with session.log:
        await session.save(0, LabelDecision(choice="success"))
        await session.save(0, LabelDecision(choice="success", note="only the note"))
        await session.save(2, LabelDecision(choice="success"))
        await session.save(2, LabelDecision(choice="failure"))
        assert session.revised == 0, "nobody else has said anything of the third"
        await session.undo()
        await session.save(0, LabelDecision(choice="failure"))
        assert session.revised == 1


async def test_later_sitting_resumes_at_unlabelled(tmp_path: Path) -> None:
    session = sit(tmp_path)
    with session.log:
        assert session.overview().at == 0
        await session.save(0, LabelDecision(choice="success"))
        assert (await session.save(2, LabelDecision(choice="success"))).next == 1
    session = sit(tmp_path)
    with session.log:
        assert session.overview().at == 1
        assert [entry.choice for entry in session.overview().entries] == [
            "success",
            None,
            "success",
        ]
        assert (await session.save(1, LabelDecision(choice="unsure"))).next is None


async def test_taken_port_is_a_clear_error(site: Site, tmp_path: Path) -> None:
    port = int(site.base.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"port {port} cannot be used"):
        async with serving(SessionSite(site.session), port):
            pass
    with pytest.raises(UsageError, match="port 99999 cannot be used"):
        async with serving(SessionSite(site.session), 99999):
            pass


# Drawn by a judge's scores


async def test_informative_labels_keep_their_chance(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path, "abcdefgh")
    scores = {id: 0.5 if id in "ab" else 1.0 for id in "abcdefgh"}
    worklist = Worklist([path], order="informative", limit=4, scores=scores)
    assert len(worklist) == 4 and set(worklist.inclusion) == set(worklist.ids)
    with LabelLog(tmp_path / "l.jsonl", "me") as log:
        session = LabelSession(worklist, log, inclusion=worklist.inclusion)
        await session.save(0, LabelDecision(choice="success"))
    (record,) = read_labels(tmp_path / "l.jsonl")
    assert record.inclusion == worklist.inclusion[record.id]
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
