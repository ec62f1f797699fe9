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
        "--model.base-url",
        server.base_url,
        *more,
    )


def test_stated_scores_are_calibrated(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 60)
    # Every fifth label is another one than the judge's: the calibrated scores are nearer to a half.
    labels = [{"id": f"t{i}", "success": (i % 3 == 0) != (i % 5 == 0)} for i in range(60)]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(label) + "\n" for label in labels))
    with MockServer(no_logprobs=True) as server:
        done = prill("score", "t.jsonl", *words(server, "--judge.probability", "stated"))
        assert (done.returncode, HARD in done.stderr) == (0, False), done.stderr
        made = prill("calibrate", "v.jsonl", "l.jsonl", "-o", "c.json", "--trajectories", "t.jsonl")
        assert made.returncode == 0, made.stderr
        again = prill(
            "score",
            "t.jsonl",
            "-o",
            "w.jsonl",
            *words(server, "--judge.probability", "stated", "--judge.calibration", "c.json")[2:],
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
            for more in ((), ("--judge.form", "verdict"))
        ]
        # a page of one's own that has no such option
        prill("judges", "modular", "--write", "own.toml")
        page = tmp_path / "own.toml"
        page.write_text(page.read_text().replace('"probability", ', ""))
        own = [page if word == "modular" else word for word in words(server, "--no-resume")]
        told.append(prill("score", "t.jsonl", *own).stderr)
    assert [len(re.findall(HARD, err)) for err in told] == [1, 1, 1]
    assert ["try probability = stated" in err for err in told] == [True, False, False]
    with MockServer() as server:
        assert (
            HARD
            not in prill(
                "score", "t.jsonl", *words(server, "--no-resume", "--judge.form", "verdict")
            ).stderr
        )
    assert HARD not in prill("score", "t.jsonl", "-o", "f.jsonl", "--judge", "always-fail").stderr
