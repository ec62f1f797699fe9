"""What `prill score` takes and says of stated probabilities, one-word replies, thinking models and
image detail.
"""

from __future__ import annotations

import re
from pathlib import Path

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
