"""What `prill score` takes and says of stated probabilities, one-word replies, thinking models and
image detail.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from prill.io.store import read_verdicts
from prill.testing import MockServer
from tests.support.commands.command import Prill, write_trajectories

HARD = "scores are 0 or 1"


def words(server: MockServer, *more: object) -> tuple[object, ...]:
    return (
        "-o",
        "v.jsonl",
        "--judge",
        "modular",
        "--model",
        "mock",
        "--base-url",
        server.base_url,
        *more,
    )


def test_stated_scores_are_calibrated(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 60)
    # Every fifth label is another one than the judge's: the calibrated scores are nearer to a half.
    labels = [{"id": f"t{i}", "success": (i % 3 == 0) != (i % 5 == 0)} for i in range(60)]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(label) + "\n" for label in labels))
    with MockServer(no_logprobs=True) as server:
        done = prill("score", "t.jsonl", *words(server, "--probability", "stated"))
        assert (done.returncode, HARD in done.stderr) == (0, False), done.stderr
        made = prill("calibrate", "v.jsonl", "l.jsonl", "-o", "c.json", "--trajectories", "t.jsonl")
        assert made.returncode == 0, made.stderr
        again = prill(
            "score",
            "t.jsonl",
            "-o",
            "w.jsonl",
            *words(server, "--probability", "stated", "--calibration", "c.json")[2:],
        )
    assert again.returncode == 0, again.stderr
    plain, calibrated = (
        {v.id: v for v in read_verdicts(tmp_path / name)} for name in ("v.jsonl", "w.jsonl")
    )
    assert plain["t1"].evaluator.params["probability"] == "stated"
    assert all((verdict.score or 0) * 100 % 1 < 1e-9 for verdict in plain.values()), (
        "whole percents"
    )
    moved = [
        abs((calibrated[id].score or 0) - 0.5) < abs((plain[id].score or 0) - 0.5) for id in plain
    ]
    assert sum(moved) > 50


def test_hard_scores_are_told_in_one_line(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 4)
    with MockServer(no_logprobs=True) as server:
        told = [
            prill("score", "t.jsonl", *words(server, "--no-resume", *more)).stderr
            for more in ((), ("--form", "verdict"))
        ]
    assert [len(re.findall(HARD, err)) for err in told] == [1, 1]
    with MockServer() as server:
        assert (
            HARD
            not in prill(
                "score", "t.jsonl", *words(server, "--no-resume", "--form", "verdict")
            ).stderr
        )
    assert HARD not in prill("score", "t.jsonl", "-o", "f.jsonl", "--judge", "always-fail").stderr


def test_refused_options_are_told_in_a_line(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 4)
    with MockServer(no_reasoning_effort=True) as server:
        done = prill(
            "score",
            "t.jsonl",
            *words(server, "--reasoning-effort", "low", "--image-detail", "high"),
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mock does not accept reasoning effort = 'low'; it was left out") == 1
    assert "image detail" not in done.stderr
    assert (
        next(read_verdicts(tmp_path / "v.jsonl")).evaluator.model
        == "mock (reasoning effort low, image detail high)"
    )
    bad = prill("score", "t.jsonl", *words(server, "--reasoning-effort", "lots"))
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "--model.reasoning-effort: Invalid enum value 'lots'; expected one of " in bad.stderr


def test_unlisted_flags_are_options_of_judges(prill: Prill) -> None:
    shown = prill("score", "--help").stdout
    listed = prill("judges", "vlm").stdout
    for option in ("form", "probability", "reasoning_effort", "image_detail", "image_format"):
        assert f"--{option.replace('_', '-')} " not in shown
        assert f"\n  {option} " in listed
    assert shown.count("\n") < 60
