"""`prill view` and `prill annotate` as processes: what they print, what they refuse, and what is
left when they end or are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prill.io.store import read_labels
from tests.support.commands.command import environment, write_trajectories


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it announces."""
    command = [sys.executable, "-m", "prill", "annotate", "t.jsonl", "-o", "l.jsonl"]
    process = subprocess.Popen(
        [*command, "--annotator", "me", "--json", *words],
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.communicate()


def post(url: str, index: int, choice: str) -> None:
    origin = url.rsplit("/", 2)[0]
    headers = {"Content-Type": "application/json", "Origin": origin}
    body = json.dumps({"choice": choice}).encode()
    asked = urllib.request.Request(f"{url}api/labels/{index}", body, headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.status == 200


def state(url: str) -> Any:
    """What the page knows once all is read."""
    while True:
        with urllib.request.urlopen(f"{url}api/state", timeout=10) as answer:
            if (found := json.load(answer))["read"] == 1:
                return found


def test_kill_keeps_labels_and_start_goes_on(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 4)
    with running(tmp_path) as (process, first):
        assert [row["mine"] for row in state(first)["rows"]] == [None] * 4
        for index, choice in ((0, "success"), (1, "failure"), (1, "unsure")):
            post(first, index, choice)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [(record.id, record.success) for record in read_labels(tmp_path / "l.jsonl")] == [
        ("t0", True),
        ("t1", None),
    ]
    with running(tmp_path) as (process, again):
        rows = state(again)["rows"]
        assert [row["mine"] for row in rows] == ["success", "unsure", None, None]
        assert again.split("/")[3] != first.split("/")[3], "every start has its own token"


def test_ctrl_c_gives_a_summary_without_the_token(tmp_path: Path) -> None:
    path = write_trajectories(tmp_path / "t.jsonl", 4)
    path.write_text('{"id": "x", "task": {}}\n' + path.read_text())
    with running(tmp_path) as (process, url):
        assert len(state(url)["problems"]) == 1
        post(url, 1, "success")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}nothing", timeout=10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 3, "some lines could not be read"
    expected = {"runs": 5, "problems": 1, "output": "l.jsonl", "written": 1, "done": 1}
    assert json.loads(out) == {**expected, "captions": 0}
    assert "t.jsonl:1: missing field `goal` - at `$.task`" in err
    assert url.split("/")[3] not in out + err + (tmp_path / "l.jsonl").read_text()


@pytest.mark.parametrize("order", ["file", "random"])
def test_page_ends_while_a_read_blocks(tmp_path: Path, order: str) -> None:
    os.mkfifo(tmp_path / "t.jsonl")
    words = ["view", "t.jsonl", "--order", order, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "prill", *words],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if order == "file":
            process.stdout.readline()  # its address
        time.sleep(5)
        process.terminate()
        process.wait(10)
    finally:
        process.kill()
        process.communicate()
