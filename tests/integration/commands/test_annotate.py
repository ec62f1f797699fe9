"""`prill annotate` as a process: what it prints, what it refuses, and what is left when it ends or
is killed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prill import AnnotateConfig, annotate_async
from prill.io.store import encode, read_labels
from prill.runs.annotate import Opened
from prill.types import LabelRecord
from tests.support.commands.command import Prill, environment, write_trajectories


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command in a process of its own, and the line that it announces itself with."""
    command = [
        sys.executable,
        "-m",
        "prill",
        "annotate",
        "t.jsonl",
        "-o",
        "l.jsonl",
        "--annotator",
        "me",
        "--json",
        *words,
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def post(url: str, index: int, choice: str) -> None:
    origin = url.rsplit("/", 2)[0]
    headers = {"Content-Type": "application/json", "Origin": origin}
    body = json.dumps({"choice": choice}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}api/labels/{index}", body, headers), timeout=10
    ) as answer:
        assert answer.status == 200


def state(url: str) -> Any:
    with urllib.request.urlopen(f"{url}api/state", timeout=10) as answer:
        return json.load(answer)


def test_kill_keeps_labels_and_start_goes_on(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 4)
    with running(tmp_path) as (process, start):
        assert (start["done"], start["left"]) == (0, 4)
        post(start["url"], 0, "success")
        post(start["url"], 1, "failure")
        post(start["url"], 1, "unsure")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [(record.id, record.success) for record in read_labels(tmp_path / "l.jsonl")] == [
        ("t0", True),
        ("t1", None),
    ]
    with running(tmp_path) as (process, again):
        assert (again["done"], again["left"]) == (2, 2)
        rows = state(again["url"])["rows"]
        assert [row["mine"] for row in rows] == ["success", "unsure", None, None]
        assert again["url"].split("/")[3] != start["url"].split("/")[3], (
            "every start has its own token"
        )


def test_ctrl_c_gives_summary_without_token(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 4)
    anna = [LabelRecord(id=f"t{i}", success=i < 2, annotator="anna") for i in range(4)]
    mine = LabelRecord(id="t1", success=True, annotator="me")
    (tmp_path / "e.jsonl").write_bytes(
        b"".join(map(encode, [*anna, mine, LabelRecord(id="t0", success=False, source="oracle")]))
    )
    with running(tmp_path, "--earlier", "e.jsonl") as (process, start):
        token = start["url"].split("/")[3]
        for index, choice in enumerate(("success", "failure", "failure")):
            post(start["url"], index, choice)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{start['url']}nothing", timeout=10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    summary = json.loads(out)
    assert (summary["written"], summary["done"], summary["left"], summary["revised"]) == (
        3,
        3,
        1,
        0,
    )
    # By hand: 2 of 3 agree; by chance 1/3 * 2/3 + 2/3 * 1/3 = 4/9; kappa (2/3 - 4/9) / (5/9) = 0.4.
    pair = {"annotator": "anna", "common": 3, "agreed": 2, "undecided": 0, "question": ""}
    assert summary["pairs"] == [{**pair, "kappa": pytest.approx(0.4)}]
    assert err.splitlines() == [
        "prill annotate: e.jsonl: left out 1 labels that were not made by people",
        (
            "prill annotate: e.jsonl: left out 1 labels of me: only labels in the output "
            "file are continued"
        ),
    ]
    assert token not in out + err + (tmp_path / "l.jsonl").read_text()


def test_annotator_name_has_controls_escaped(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    (tmp_path / "e.jsonl").write_bytes(
        encode(LabelRecord(id="t0", success=True, annotator="anna\x1b[2J"))
    )
    command = [
        sys.executable,
        "-m",
        "prill",
        "annotate",
        "t.jsonl",
        "-o",
        "l.jsonl",
        "--annotator",
        "me",
    ]
    command += ["--earlier", "e.jsonl"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # it listens
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert "With anna?[2J: no trajectory was decided by both" in out


def test_broken_line_is_told_and_rest_served(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path / "t.jsonl", 2)
    path.write_text('{"id": "x", "task": {}}\n' + path.read_text())
    with running(tmp_path) as (process, start):
        assert start["left"] == 2
        assert len(state(start["url"])["problems"]) == 1
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "left out: t.jsonl:1: missing field `goal` - at `$.task`" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.jsonl", "-o", "l.jsonl", "--annotator", "me"), "none.jsonl: no such file"),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", " "),
            "annotator: expected a name, got an empty one",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "a\udcff"),
            "'a\\udcff': expected valid UTF-8 without control characters",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "a\x1b[2J"),
            "expected valid UTF-8 without control characters",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "a" * 201),
            "annotator: 201 characters are too many; use at most 200",
        ),
        (("t.jsonl", "-o", "l.jsonl"), "--annotator"),
        (
            ("t.jsonl", "-o", "t.jsonl", "--annotator", "me"),
            "t.jsonl: this is also an input; choose another file (-o)",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "me", "--earlier", "none.jsonl"),
            "none.jsonl: no such file",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "me", "--port", "99999"),
            "--port: Expected `int` <= 65535",
        ),
        (
            ("t.jsonl", "-o", "l.jsonl", "--annotator", "me", "--blind", "--show-verdicts"),
            "give only one of them (--blind, --show-verdicts)",
        ),
        (("t.jsonl", "-o", "l.jsonl", "--annotator", "me", "--limit", "0"), "--limit"),
        (("t.jsonl", "-o", "t.jsonl/l.jsonl", "--annotator", "me"), "cannot be written"),
    ],
)
def test_bad_usage_is_told_without_a_server(
    prill: Prill, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 2)
    before = (tmp_path / "t.jsonl").read_bytes()
    result = prill("annotate", *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert "http" not in result.stdout
    assert (tmp_path / "t.jsonl").read_bytes() == before


@pytest.mark.asyncio
async def test_labels_from_python_are_those_of_the_command(tmp_path: Path) -> None:
    """The same decision, once by the process and once by the coroutine, which leaves the event loop
    free.
    """
    write_trajectories(tmp_path / "t.jsonl", 2)
    with running(tmp_path) as (process, start):
        post(start["url"], 0, "failure")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    stop, pages = asyncio.Event(), list[Opened]()

    async def decide() -> None:
        while not pages:
            await asyncio.sleep(0)
        await asyncio.to_thread(post, pages[0].url, 0, "failure")
        stop.set()

    config = AnnotateConfig(
        trajectories=[tmp_path / "t.jsonl"], output=tmp_path / "python.jsonl", annotator="me"
    )
    result, _ = await asyncio.gather(
        annotate_async(config, stop=stop, opened=pages.append), decide()
    )
    ours, theirs = (
        [(r.id, r.success, r.annotator) for r in read_labels(tmp_path / n)]
        for n in ("python.jsonl", "l.jsonl")
    )
    assert ours == theirs == [("t0", False, "me")]
    assert json.loads(out) == json.loads(json.dumps({**result.table(), "file": "l.jsonl"}))
    assert (pages[0].total, result.left, result.written) == (2, 1, 1)
