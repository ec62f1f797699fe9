"""`prill score` and `prill caption` by the real Ray, interrupted in every way: nothing lost, little
asked twice.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.testing import MockServer

COUNT, AT_ONCE = 300, 16
PATIENCE = 300.0  # seconds: Ray starts in four where there is nothing else to do
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed here: make test-frameworks",
    ),
    pytest.mark.skipif(
        "PRILL_LONG" not in os.environ,
        reason="PRILL_LONG=1: Ray is started ten times, five minutes",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def until(happened: Callable[[], bool], what: str) -> None:
    """Waits for it."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} seconds"
        time.sleep(0.05)


def lines(folder: Path) -> int:
    """Verdicts or captions in the output."""
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("out.jsonl"))


def alive(session: int) -> dict[int, str]:
    """The processes of a session that still run, and their names."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == session and state not in "ZX":
            found[int(stat.parent.name)] = name.partition("(")[2]
    return found


def run(folder: Path, command: list[str], way: str) -> tuple[int, str]:
    """The exit code and the messages of a run that is interrupted that way, after a third of what
    is missing. Any other way is the name of a server of Ray's, which is killed."""
    before = lines(folder)
    with (folder / f"{way}.err").open("wb") as messages:
        process = subprocess.Popen(
            command, cwd=folder, stdout=messages, stderr=messages, start_new_session=True
        )
    if way != "end":
        until(
            lambda: lines(folder) >= before + (COUNT - before) // 3 or process.poll() is not None,
            "verdicts",
        )
        assert process.poll() is None, (folder / f"{way}.err").read_text()
        if way == "kill":
            process.kill()
        elif way in ("once", "twice"):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        else:
            [server] = [pid for pid, name in alive(process.pid).items() if name == way]
            os.kill(server, signal.SIGKILL)
        if way == "twice":
            until(
                lambda: b"press Ctrl-C again" in (folder / "twice.err").read_bytes(),
                "the first Ctrl-C is heard",
            )
            os.killpg(process.pid, signal.SIGINT)
    code = process.wait(PATIENCE)
    until(lambda: not alive(process.pid), f"the end of {alive(process.pid)}")
    return code, (folder / f"{way}.err").read_text()


def command(verb: str, server: MockServer, *words: str) -> list[str]:
    judge = ["--judge", "modular", "--judge.captioner", "given"] if verb == "score" else []
    return [
        *(sys.executable, "-m", "prill", verb, "t.jsonl", "-o", "out.jsonl", *judge),
        *(
            "--model",
            "mock",
            "--model.base-url",
            server.base_url,
            "--concurrency",
            str(AT_ONCE),
            *words,
        ),
    ]


def write_states(folder: Path, verb: str) -> None:
    final: dict[str, Any] = {"caption": "The order was placed."}
    with (folder / "t.jsonl").open("w") as file:
        for i in range(COUNT):
            if verb == "caption":
                Image.new("RGB", (8, 8), (i % 256, i // 256, 0)).save(folder / f"{i}.png")
                final = {"screenshot": f"{i}.png"}
            state = {"id": f"t{i}", "task": {"goal": f"goal {i}"}, "final": final}
            file.write(json.dumps(state) + "\n")


def records(folder: Path) -> list[str]:
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [record.get("id") or record["screenshot"] for record in found]


@pytest.mark.parametrize("verb", ["score", "caption"])
def test_interrupted_ray_loses_nothing(tmp_path: Path, verb: str) -> None:
    write_states(tmp_path, verb)
    with MockServer(latency=0.4) as server:
        words = command(verb, server, "--engine", "ray", "--workers", "2")
        code, said = run(tmp_path, words, "once")
        assert code == 130 and "the same command" in said, said
        assert server.stats().requests == lines(tmp_path), "the first Ctrl-C drops no call"
        code, said = run(tmp_path, words, "twice")
        assert (
            code == 130 and "cancelled the calls in progress" in said and "Traceback" not in said
        ), said
        code, said = run(tmp_path, words, "kill")
        assert code == -signal.SIGKILL, said
        code, said = run(tmp_path, words, "end")
        assert code == 0 and len(said.replace("\r", "\n").splitlines()) < 40, said
        assert len(set(records(tmp_path))) == len(records(tmp_path)) == COUNT
        assert server.stats().requests <= COUNT + 2 * (AT_ONCE + AT_ONCE // 8)


@pytest.mark.parametrize("server", ["raylet", "gcs_server"])
def test_lost_ray_loses_nothing(tmp_path: Path, server: str) -> None:
    write_states(tmp_path, "score")
    with MockServer(latency=0.4) as mock:
        words = command("score", mock, "--engine", "ray", "--workers", "2")
        code, said = run(tmp_path, words, server)
        # Ray's workers go on for a minute without its servers, so the run may complete.
        assert lines(tmp_path) >= (COUNT if code == 0 else COUNT // 3), said
        code, said = run(tmp_path, command("score", mock), "end")
        assert code == 0, said
        assert len(set(records(tmp_path))) == len(records(tmp_path)) == COUNT
        assert mock.stats().requests <= COUNT + AT_ONCE + 2 * (AT_ONCE // 8)
