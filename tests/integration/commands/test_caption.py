"""`prill caption`, and `prill score` by its files: each picture once, nothing asked twice, no goal
in any request.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image as Picture

import prill as package
from prill.captioner.files import read_captions
from prill.io.store import read_verdicts
from tests.support.commands.command import Prill, environment
from tests.support.commands.endpoint import Endpoint

GOAL = "Buy the secret lamp."
VERDICT = '{"thoughts": "seen", "status": "success"}'


def write(folder: Path, shots: Sequence[Sequence[str]], lines: Sequence[str] = ()) -> Path:
    """A trajectory for each list of pictures, and lines as they are. A picture is named by its
    colour and what follows `-`.
    """
    rows = []
    for i, names in enumerate(shots):
        for name in names:
            if name.partition("-")[0] in ("red", "blue", "green", "black"):
                Picture.new("RGB", (8, 8), name.partition("-")[0]).save(folder / f"{name}.png")
        *before, last = [{"screenshot": f"{name}.png"} for name in names]
        steps = [
            {"observation": state, "action": {"kind": "click", "text": "click"}} for state in before
        ]
        task = {"goal": GOAL, "platform": "web"}
        rows.append(json.dumps({"id": f"t{i}", "task": task, "steps": steps, "final": last}))
    (folder / "t.jsonl").write_text("".join(f"{row}\n" for row in (*rows, *lines)))
    return folder / "t.jsonl"


def captions(path: Path) -> dict[str, str | None]:
    return {line.image: line.caption for line in read_captions(path)}


def test_captions_once_then_score_by_file(prill: Prill, tmp_path: Path) -> None:
    write(tmp_path, [["red", "blue"], ["red-again", "green"], ["blue", "black"]])
    with Endpoint(lambda text: "a page in one colour") as captioner:
        done = prill("caption", "t.jsonl", "-o", "c.jsonl", "--json", *captioner.words)
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout)
    assert (tally["made"], tally["equal"], tally["kept"], tally["trajectories"]) == (4, 1, 0, 3)
    # of equal pictures, the one that is read first gives its name
    made = {
        name.replace("-again", ""): text for name, text in captions(tmp_path / "c.jsonl").items()
    }
    assert made == dict.fromkeys(
        ("red.png", "blue.png", "green.png", "black.png"), "a page in one colour"
    )
    assert len(captioner.turns) == 4 and len(captioner.pictures) == 4
    with Endpoint(lambda text: VERDICT) as judge:
        words = [
            "score",
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "modular",
            "--judge.captioner",
            "c.jsonl",
            *judge.words,
        ]
        assert prill(*words).returncode == 0
    assert judge.pictures == [], "no picture is looked at again"
    assert len(judge.turns) == 3 and all(
        "a page in one colour" in turn and GOAL in turn for turn in judge.turns
    )
    assert GOAL not in json.dumps(captioner.bodies)
    verdicts = list(read_verdicts(tmp_path / "v.jsonl"))
    assert [verdict.success for verdict in verdicts] == [True] * 3
    assert verdicts[0].evaluator.params["captioner"].startswith("vlm m (prill) ")


def test_resume_asks_nothing_twice(prill: Prill, tmp_path: Path) -> None:
    write(tmp_path, [["red", "blue"], ["green"]])
    with Endpoint(lambda text: "words") as captioner:
        command = ["caption", "t.jsonl", "-o", "c.jsonl", *captioner.words]
        prill(*command, "--limit", 1)
        whole = (tmp_path / "c.jsonl").read_bytes()
        (tmp_path / "c.jsonl").write_bytes(whole[:-20])
        assert prill(*command).returncode == 0, (
            "a torn line is cut off, and its picture asked about again"
        )
        before = len(captioner.turns)
        done = prill(*command)
    assert before == len(captioner.turns) == 4
    assert "0 captions made, 3 already in the file" in done.stderr
    assert len(captions(tmp_path / "c.jsonl")) == 3


def test_failures_are_states_and_counted(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    write(tmp_path, [["red", "gone"], ["torn", "blue"], ["gone", "red"]], ['{"id": 7}'])
    replies: list[Any] = [{"content": None, "refusal": "no"}, "a blue page"]
    with Endpoint(lambda text: replies.pop(0)) as captioner:
        command = ["caption", "t.jsonl", "-o", "c.jsonl", "--concurrency", 1, *captioner.words]
        done = prill(*command)
        assert done.returncode == 3
        assert (
            "without a caption: input 2, refusal 1" in done.stderr
            and "1 lines are not trajectories" in done.stderr
        )
        assert done.stderr.count("gone.png is missing") == 1
        lines = {line.image: line.unscored for line in read_captions(tmp_path / "c.jsonl")}
        assert lines == {"red.png": "refusal", "torn.png": "input", "blue.png": None}
        assert prill(*command).returncode == 3 and len(captioner.turns) == 2, (
            "a refusal is asked again only when told so"
        )
        replies.append("a red page")
        prill(*command, "--retry-unscored")
    assert captions(tmp_path / "c.jsonl")["red.png"] == "a red page"


def test_score_captions_with_a_model_of_its_own(prill: Prill, tmp_path: Path) -> None:
    write(tmp_path, [["red"]])
    with Endpoint(lambda text: VERDICT if GOAL in text else "all red") as endpoint:
        words = [
            "score",
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "modular",
            "--judge.captioner",
            "vlm",
            *endpoint.words,
        ]
        assert "captioner.model is missing" in prill(*words).stderr
        assert (
            "a budget needs a price for eyes"
            in prill(*words, "--judge.captioner.model", "eyes", "--budget-usd", "1").stderr
        )
        assert prill(*words, "--judge.captioner.model", "eyes").returncode == 0
    assert Counter(body["model"] for body in endpoint.bodies) == {"eyes": 1, "m": 1}


def test_python_does_what_the_command_does(prill: Prill, tmp_path: Path) -> None:
    write(tmp_path, [["red", "blue"], ["red-again", "green"]])
    with Endpoint(lambda text: "a page in one colour") as captioner:
        words = [*captioner.words, "--max-tokens", 9, "--concurrency", 1]
        said = prill("caption", "t.jsonl", "-o", "c.jsonl", *words)
        table = {"model": captioner.words[1], "base_url": captioner.words[3], "max_tokens": 9}
        config = package.CaptionConfig(
            trajectories=["t.jsonl"],
            output="p.jsonl",
            captioner={"name": "vlm", **table},
            concurrency=1,
        )
        result = package.caption(config)
    assert str(result).replace("p.jsonl", "c.jsonl") == said.stderr.splitlines()[-1]
    assert captions(tmp_path / "p.jsonl") == captions(tmp_path / "c.jsonl")
    assert list(result.to_pandas()["caption"]) == ["a page in one colour"] * 3
    assert captioner.bodies[:3] == captioner.bodies[3:], "the same requests"


def test_killed_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, [["red", "blue", "green", "black"]])
    command = [
        sys.executable,
        "-m",
        "prill",
        "caption",
        "t.jsonl",
        "-o",
        "c.jsonl",
        "--concurrency",
        "1",
    ]
    running: list[subprocess.Popen[bytes]] = []

    def answer(text: str) -> str:
        if len(captioner.turns) == 3 and running[0].poll() is None:
            os.kill(running[0].pid, signal.SIGKILL)
            running[0].wait()
        return "words"

    with Endpoint(answer) as captioner:
        running.append(
            subprocess.Popen(
                [*command, *captioner.words],
                cwd=tmp_path,
                env=environment(),
                stderr=subprocess.DEVNULL,
            )
        )
        running[0].wait()
        assert len(captions(tmp_path / "c.jsonl")) == 2
        done = subprocess.run(
            [*command, *captioner.words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(captioner.turns) == 5, "only what was under way is asked again"
    assert len(captions(tmp_path / "c.jsonl")) == 4
