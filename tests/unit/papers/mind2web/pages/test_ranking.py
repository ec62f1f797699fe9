"""Ranking: scores by words, figures counted by hand, and score files that are continued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from prill.cli import main
from prill.errors import UsageError
from prill.io.store import iter_trajectories, write_trajectories
from prill.papers.mind2web.pages.ranking import (
    Bm25,
    RankConfig,
    Ranked,
    RankingTally,
    rank,
    rank_file,
)
from prill.papers.mind2web.pages.state import PageState, read_scores, read_state
from prill.types import Action, Observation, Step, Task, Trajectory

pytest.importorskip("lxml", reason="not installed: pip install '.[papers]'")
WORDS = ("Cart", "Search", "Log in", "Cart")


def turn_of(number: int, target: str) -> Trajectory:
    buttons = "".join(
        f'<div backend_node_id="{70 + i}"><a backend_node_id="{10 + i}"><text '
        f'backend_node_id="{50 + i}">{word}</text></a>'
        "</div>"
        for i, word in enumerate(WORDS)
    )
    page = f'<html backend_node_id="1">{buttons}</html>'
    state = PageState(page, ("13", "12", "11", "10"), ()).text()
    step = Step(Observation(text=state), Action("click", "[a]  x -> CLICK", target=target))
    task = Task(id=f"t{number}", goal="search for tea", platform="web")
    return Trajectory(
        id=f"t{number}",
        task=task,
        steps=(step,),
        metadata={"conversation": "c", "turn": 0, "uids": [f"u{number}"]},
    )


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    write_trajectories(
        tmp_path / "gold.jsonl", [turn_of(0, "11"), turn_of(1, "10 13"), turn_of(2, "")]
    )
    return tmp_path / "gold.jsonl"


class Counting:
    """A ranker by the length of a text, which knows how often it was asked."""

    name = "length"

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        self.asked.append(texts)
        return [float(len(text)) for text in texts]


def test_bm25_by_hand() -> None:
    """Of 3 texts one has the word, of 2 words, the mean being 2: ln(1 + 2.5 / 1.5) * 2.2 / (1 +
    1.2).
    """
    found = asyncio.run(Bm25().score("red", ["red box", "blue box", "blue hat"]))
    assert found == pytest.approx([0.9808, 0, 0], abs=1e-4)
    assert asyncio.run(Bm25().score("", ["a"])) == [0.0]


def test_figures_by_hand() -> None:
    tally = RankingTally()
    tally.add(Ranked({"a": 1.0, "b": 2.0}, frozenset("b")))  # first of 2
    # fourth of 4: the tie goes to c
    tally.add(Ranked({"a": 4.0, "b": 3.0, "c": 2.0, "d": 2.0}, frozenset("d")))
    tally.add(Ranked({"a": 4.0, "b": 3.0}, frozenset()))  # missed
    found = tally.figures()
    assert (found.steps, found.without) == (3, 1)
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.mrr == pytest.approx((1 + 1 / 4) / 3)
    assert found.chance == pytest.approx((1 / 2 + 1 / 4) / 3)
    assert [found.recall[3], found.recall[5]] == pytest.approx([1 / 3, 2 / 3])


def test_score_files_are_read_again(gold: Path, tmp_path: Path) -> None:
    tally = asyncio.run(
        rank_file(gold, Bm25(), tmp_path / "s.json", reordered=tmp_path / "r.jsonl")
    )
    scores = read_scores(tmp_path / "s.json")
    assert list(scores) == ["t0_u0", "t1_u1", "t2_u2"]
    assert max(scores["t0_u0"], key=scores["t0_u0"].__getitem__) == "11"
    assert json.loads((tmp_path / "s.json").read_bytes())["ranks"]["t0_u0"] == {
        "11": 0,
        "13": 1,
        "12": 2,
        "10": 3,
    }
    orders = [
        read_state(turn.steps[0].observation.text or "").candidates
        for turn in iter_trajectories(tmp_path / "r.jsonl")
        if isinstance(turn, Trajectory)
    ]
    assert orders == [("11", "13", "12", "10")] * 3
    assert (tally.ranked.figures().accuracy, tally.ranked.figures().without) == (
        pytest.approx(1 / 3),
        1,
    )
    assert not (tmp_path / "s.json.steps").exists()


def test_a_stopped_ranking_goes_on(gold: Path, tmp_path: Path) -> None:
    """After a stop and half a line, as a crash leaves it, only what is missing is scored."""
    whole = asyncio.run(rank_file(gold, Counting(), tmp_path / "whole.json"))

    async def stopped() -> bool:
        stop = asyncio.Event()
        return (
            await rank_file(
                gold, Counting(), tmp_path / "s.json", stop=stop, progress=lambda _: stop.set()
            )
        ).stopped

    assert asyncio.run(stopped())
    with (tmp_path / "s.json.steps").open("ab") as file:
        file.write(b'{"sample": "t1_u1", "sco')
    with pytest.raises(UsageError, match="belongs to another ranker"):
        asyncio.run(rank_file(gold, Bm25(), tmp_path / "s.json"))
    ranker = Counting()
    tally = asyncio.run(rank_file(gold, ranker, tmp_path / "s.json"))
    assert (len(ranker.asked), tally.kept) == (2, 1)
    assert (tmp_path / "s.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert tally.ranked.figures() == whole.ranked.figures()


def test_rank_command_tells_figures(
    gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "papers",
                "rank",
                str(gold),
                "-o",
                str(tmp_path / "s.json"),
                "--ranker",
                "embedding:tfidf",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "steps     3 (1 without a right candidate, counted as missed)" in out
    assert "accuracy  33.3%" in out
    config = RankConfig(trajectories=gold, output=tmp_path / "p.json", ranker="embedding:tfidf")
    result = rank(config)
    assert (
        str(result) == out.strip()
        and (tmp_path / "p.json").read_bytes() == (tmp_path / "s.json").read_bytes()
    )
