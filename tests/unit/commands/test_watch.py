"""`prill watch`, and the watch of `prill serve`, as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import prill as library
from prill.io.store import encode
from prill.refine.rewards import WatchRecord
from prill.types import EvaluatorInfo, Opinion, Verdict
from tests.support.commands.command import Prill

JUDGE, STUDENT = EvaluatorInfo("vlm", "1", "m"), EvaluatorInfo("student", "1")


def said(success: bool) -> Opinion:
    return Opinion(judge="judge", success=success, score=0.8 if success else 0.2)


def course(count: int, *, hacked: bool = False) -> Iterator[WatchRecord]:
    """A run of which half succeeds; or less and less, and the judge believes ever more of the
    rest.
    """
    for i in range(count):
        far = i / count if hacked else 0.0
        true = i * 7 % 10 < 5 - 3.5 * far
        believed = true or i * 3 % 11 < 10 * far
        yield WatchRecord(
            kind="verdict", at="", id=f"run-{i}", verdict=said(believed), student=said(true)
        )


@pytest.fixture
def hacked(tmp_path: Path) -> Path:
    """A log of a run whose judge is fooled more and more."""
    path = tmp_path / "hacked.jsonl"
    path.write_bytes(b"".join(map(encode, course(1200, hacked=True))))
    return path


@pytest.fixture
def steady(tmp_path: Path) -> Path:
    """A log of a run in which nothing changes."""
    path = tmp_path / "steady.jsonl"
    path.write_bytes(b"".join(map(encode, course(600))))
    return path


def verdicts(path: Path, opinions: list[tuple[str, Opinion | None]], by: EvaluatorInfo) -> Path:
    lines = [
        encode(
            Verdict(
                id=id, success=one.success, score=one.score, unscored=one.unscored, evaluator=by
            )
        )
        for id, one in opinions
        if one is not None
    ]
    path.write_bytes(b"".join(lines))
    return path


def test_an_alarm_is_an_exit_code(prill: Prill, hacked: Path, steady: Path, tmp_path: Path) -> None:
    quiet = prill("watch", steady)
    assert (
        quiet.returncode == 0
        and f"{steady}: no alarm; 600 verdicts, 0 unscored by judge" in quiet.stdout
    )
    page = tmp_path / "out" / "watch.html"
    loud = prill("watch", steady, hacked, "-o", page)
    assert loud.returncode == 1
    assert (
        "alarm    hacking       the judge's mean went from" in loud.stdout
        and "(since verdict " in loud.stdout
    )
    text = page.read_text()
    assert text.count("<svg") == 6 and "2 alarms" in text and "<script" not in text
    assert prill("watch", hacked, "-o", page).returncode == 1  # its own page may be written over
    assert (
        "contains observations, not a page of a watch"
        in prill("watch", hacked, "-o", steady).stderr
    )


def test_verdict_files_are_watched_too(prill: Prill, tmp_path: Path) -> None:
    run_ = list(course(1200, hacked=True))
    ours = verdicts(tmp_path / "v.jsonl", [(one.id, one.verdict) for one in run_], JUDGE)
    theirs = verdicts(
        tmp_path / "s.jsonl", [(one.id, one.student) for one in reversed(run_)], STUDENT
    )
    alone = prill("watch", ours, "--json")
    assert alone.returncode == 0
    [found] = json.loads(alone.stdout)
    assert (
        found["alarms"] == []
        and {one["name"]: one["state"] for one in found["signs"]}["drift"] == "notice"
    )
    both = prill("watch", ours, "--student", theirs, "--json")
    assert both.returncode == 1 and json.loads(both.stdout)[0]["alarms"] == [
        "disagreement",
        "hacking",
    ]
    reference = prill("watch", ours, "--reference", theirs, "--drift-alarm", "--window", "100")
    assert reference.returncode == 1 and "alarm    drift" in reference.stdout


def test_python_finds_what_the_command_finds(
    prill: Prill, hacked: Path, steady: Path, tmp_path: Path
) -> None:
    done = prill("watch", hacked, steady, "--json", "-o", tmp_path / "w.html")
    config = library.WatchConfig(logs=[hacked, steady], output=tmp_path / "p.html")
    counted: list[str] = []
    found = library.watch(config, progress=counted.append)
    assert json.loads(done.stdout) == json.loads(json.dumps(found.table()))
    assert (tmp_path / "p.html").read_bytes() == (tmp_path / "w.html").read_bytes()
    assert (
        found.alarms == ("disagreement", "hacking")
        and counted == [str(hacked)] * 1200 + [str(steady)] * 600
    )
    signs = found.to_pandas()
    assert list(signs[signs.state == "alarm"].sign) == ["disagreement", "hacking"]
    assert (
        "<script" not in found._repr_html_()
        and str(found) == prill("watch", hacked, steady).stdout.strip()
    )


def test_broken_lines_are_told_and_passed(prill: Prill, steady: Path, tmp_path: Path) -> None:
    lines = steady.read_bytes().splitlines(keepends=True)
    steady.write_bytes(
        b"{broken\n" + b"".join(lines[:50]) + b'{"kind": "verdict", "at": ""}\n' + lines[50][:30]
    )
    done = prill("watch", steady)
    assert done.returncode == 3 and "50 verdicts" in done.stdout
    assert (
        f"{steady}:1: not valid JSON" in done.stderr
        and f"{steady}:52: missing field `id`" in done.stderr
    )
    assert f"{steady}:53: not valid JSON" in done.stderr


def test_other_files_are_refused(prill: Prill, steady: Path, tmp_path: Path) -> None:
    labels = tmp_path / "l.jsonl"
    labels.write_text('{"id": "a", "success": true}\n')
    garbage = tmp_path / "g.jsonl"
    garbage.write_text("nothing\n")
    empty = tmp_path / "e.jsonl"
    empty.touch()
    for path, words in (
        (labels, "contains labels, not observations"),
        (garbage, "no line could be read"),
        (empty, "these files are empty"),
        (tmp_path / "none", "no such file"),
    ):
        done = prill("watch", path)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    second = verdicts(tmp_path / "s.jsonl", [("a", said(True))], STUDENT)
    done = prill("watch", steady, "--student", second)
    assert "observations already contain the second judge's verdicts" in done.stderr
    assert prill("watch", steady, "--window", "3").returncode == 2


def test_names_in_logs_are_text_on_pages(prill: Prill, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    records = [
        WatchRecord(
            kind="canary",
            at="",
            id=name,
            verdict=Opinion(judge=name, success=bool(i)),
            label=True,
            round=2 - i,
        )
        for i in (1, 0)
    ]
    log, page = tmp_path / "w.jsonl", tmp_path / "w.html"
    log.write_bytes(b"".join(map(encode, records)))
    assert prill("watch", log, "-o", page).returncode == 1
    assert "&lt;img src=x" in page.read_text() and "<img" not in page.read_text()


def test_serve_takes_the_watch_by_name(prill: Prill, tmp_path: Path) -> None:
    done = prill("serve", "--judge", "always-fail", "--canaries", tmp_path / "c.jsonl")
    assert done.returncode == 2 and "give both" in done.stderr and "--canary-labels" in done.stderr
    service = tmp_path / "service.toml"
    service.write_text('[reward]\njudge = "always-fail"\n[reward.watch]\nwindow = 50\n')
    done = prill("serve", service, "--canary-labels", tmp_path / "l.jsonl")
    assert done.returncode == 2 and "give both" in done.stderr
