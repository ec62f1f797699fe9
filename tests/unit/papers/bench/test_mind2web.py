"""Marks of recorded steps and their figures, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from prill.papers.bench.mind2web import (
    PlayedTurn,
    RecordedTurn,
    compute_figures,
    compute_ranking,
    describe_data,
    played_turn,
    recorded_bench,
)
from prill.papers.bench.papers import read_paper
from prill.papers.bench.tables import bench_picture, bench_text
from prill.papers.mind2web.pages.state import Marking, StepScore, StepTarget, word_f1
from prill.types import Action, Observation, Step, Task, Trajectory

RIGHT, WRONG = StepScore(1.0, 1.0, True), StepScore(0.0, 0.5, False)


def turn(
    id: str, conversation: str, *scores: StepScore, number: int = 0, site: str = "a"
) -> PlayedTurn:
    asked = tuple(StepTarget(("1",), (0,), "CLICK") for _ in scores)
    return PlayedTurn(
        RecordedTurn(id=id, conversation=conversation, number=number, site=site, asked=asked),
        scores,
    )


def shares(played: list[PlayedTurn], counting: str) -> list[float | None]:
    figures = compute_figures(played).figures[counting]  # type: ignore[index]
    return [None if one.share is None else round(one.share, 4) for one in figures.values()]


def test_f1_counts_sets_of_words_with_case() -> None:
    assert word_f1("TYPE new york", "TYPE new york", punctuation=True) == 1
    assert word_f1("CLICK", "TYPE a", punctuation=True) == 0
    assert word_f1("TYPE new york", "TYPE New York", punctuation=True) == pytest.approx(1 / 3)
    assert word_f1("", "", punctuation=True) == 1
    assert word_f1("", "CLICK", punctuation=True) == 0
    assert word_f1("TYPE a a", "TYPE a", punctuation=True) == 1, "sets, not lists"


@pytest.mark.parametrize(
    ("said", "wanted", "f1"),
    [
        ("TYPE [1] [new york]", ("TYPE", "New York"), 1 / 3),
        ("SELECT [3] [Pickup]", ("TYPE", "Pickup"), 1 / 2),
        ("[5] [x]", ("TYPE", "x"), 2 / 3),
        ("click 5", ("CLICK", ""), 0),
        ("TYPE [5] []", ("TYPE", "a"), 2 / 3),
    ],
)
def test_synapse_reads_what_was_said(said: str, wanted: tuple[str, str], f1: float) -> None:
    score = Marking("synapse").score(StepTarget(("1",), (0,), *wanted), Action("none", said))
    assert score.f1 == pytest.approx(f1)


def test_synapse_match_by_text_or_by_parts() -> None:
    asked, done = StepTarget(("5", "6"), (0, 1), "CLICK"), Action("click", " CLICK [5]")
    assert Marking("synapse").score(asked, done) == RIGHT
    assert not Marking("synapse", step_match="exact_text").score(asked, done).success
    other = Marking("synapse").score(asked, Action("click", "CLICK [6]", target="6"))
    assert (other.element, other.success) == (0, False), "only the first positive counts"
    assert Marking().score(asked, Action("click", "CLICK [6]", target="6")).success, (
        "here any positive does"
    )


def test_lost_target_is_wrong_whatever_was_done() -> None:
    done = Action("click", "CLICK [5]", target="5")
    assert Marking(top=5).score(StepTarget(("5",), (5,), "CLICK"), done) == StepScore()
    assert Marking(top=5).score(StepTarget((), (), "CLICK"), done) == StepScore()
    assert Marking(top=6).score(StepTarget(("5",), (5,), "CLICK"), done) == RIGHT


def test_value_of_a_click_counts_against_it() -> None:
    """As in MindAct's evaluators, where what is predicted is operation and value, whatever the
    operation.
    """
    done = Action("click", "CLICK [5] [shoes]", target="5", value="shoes")
    assert Marking().score(StepTarget(("5",), (0,), "CLICK"), done) == StepScore(
        1.0, pytest.approx(2 / 3), False
    )
    assert Marking("synapse").score(StepTarget(("5",), (0,), "CLICK"), done).f1 == 1, (
        "Synapse's reads none of a click"
    )
    assert (
        Marking().score(StepTarget(("5",), (0,), "CLICK", "left over"), Action("click", target="5"))
        == RIGHT
    )


def test_turns_and_conversations_are_averaged() -> None:
    played = [
        turn("a0", "a", RIGHT, WRONG),  # ele 1/2, F1 3/4, not all right
        # ele 3/4, F1 7/8; the last step had no positive, say
        turn("a1", "a", RIGHT, RIGHT, RIGHT, WRONG, number=1),
        turn("b0", "b", RIGHT),
        turn("b1", "b", WRONG, number=1),
    ]
    # Over turns: (1/2 + 3/4 + 1 + 0) / 4 and (3/4 + 7/8 + 1 + 1/2) / 4; over conversations: (4/6 +
    # 1/2) / 2 and (0 + 1/2) / 2.
    assert shares(played, "mt-mind2web") == [0.5625, 0.7812, 0.5833, 0.25]
    assert shares(played, "micro") == [0.625, 0.8125, 0.625]


def test_tasks_are_averaged_as_in_mindact() -> None:
    played = [turn("a", "a", RIGHT, WRONG), turn("b", "b", RIGHT, RIGHT, RIGHT, RIGHT)]
    assert shares(played, "mind2web")[2:] == [0.75, 0.5]
    assert shares(played, "micro")[2] == pytest.approx(0.8333)


def test_unplayed_steps_of_an_episode_are_wrong() -> None:
    recorded = turn("a", "a", RIGHT, RIGHT).turn
    step = Step(Observation(), Action("click", target="1"))
    episode = Trajectory(id="x", task=Task(goal=""), steps=(step,))
    assert played_turn(recorded, episode).scores == (RIGHT, StepScore())
    assert (
        played_turn(recorded, Trajectory(id="x", task=Task(goal=""), error="no reply")).scores
        is None
    )


def test_intervals_hold_the_share_and_seeds_do_not() -> None:
    """Conversations vary, so the interval has room; playing them three times more tells nothing
    new.
    """
    once = [turn(f"{c}", f"{c}", RIGHT if c % 3 else WRONG) for c in range(30)]
    figure = compute_figures(once).figures["mind2web"]["SR"]
    assert figure.share is not None and figure.low is not None and figure.high is not None
    assert figure.low < figure.share < figure.high
    seeds = [PlayedTurn(one.turn, one.scores, seed) for one in once for seed in range(4)]
    assert compute_figures(seeds).figures["mind2web"]["SR"] == figure


def test_ranking_is_the_best_candidate_alone() -> None:
    asked = (
        StepTarget(("1",), (0,), "CLICK"),
        StepTarget(("2", "3"), (7, 3), "CLICK"),
        StepTarget((), (), "CLICK"),
    )
    ranking = compute_ranking([RecordedTurn(id="a", conversation="a", asked=asked)])
    assert ranking.first.figures["mt-mind2web"]["Ele. Acc"].share == pytest.approx(1 / 3)
    assert ranking.recall == pytest.approx({1: 1 / 3, 5: 2 / 3, 10: 2 / 3, 20: 2 / 3, 50: 2 / 3})


def test_tables_stand_beside_theirs() -> None:
    played = [
        PlayedTurn(
            RecordedTurn(
                id=f"{c}{t}", conversation=c, number=t, split="cross-task", asked=one.turn.asked
            ),
            one.scores,
        )
        for c in "ab"
        for t in range(2)
        for one in [turn("", "", RIGHT)]
    ]
    bench = recorded_bench(
        played, [read_paper("self-map"), read_paper("synapse-mind2web")], agent="mine | odd"
    )
    text = bench_text(bench)
    assert (
        "| **theirs**: MT-Mind2Web: Self-MAP (Flan-T5-base) |  |  |  | 56.2% | 82.5% | 47.1% | "
        "24.7% |" in text
    )
    assert "mine \\| odd" in text
    assert "CodeLlama" not in text, "figures of single tasks are about other data"
    assert "| the best candidate | 4 | 0 | - | 100.0%" in text
    assert bench_picture(bench).startswith("<svg")


def test_data_is_counted_by_hand_beside_theirs() -> None:
    def one(conversation: str, number: int, elements: tuple[int, ...]) -> RecordedTurn:
        return RecordedTurn(
            id=f"{conversation}{number}",
            conversation=conversation,
            number=number,
            split="cross-task",
            asked=(StepTarget(("1",), (0,), "CLICK"),) * len(elements),
            instruction=10 * (number + 1),
            elements=elements,
            pages=tuple(100 * count for count in elements),
        )

    turns = [one("a", 0, (2, 4)), one("a", 1, (9,)), one("b", 0, (1, 2, 3))]
    played = [PlayedTurn(turn, (RIGHT,) * len(turn.asked)) for turn in turns]
    bench = recorded_bench(played, [read_paper("self-map")], agent="mine")
    data = bench.splits[0].data
    assert data is not None
    counts = [data[name] for name in ("conversations", "turns", "turns_each", "actions")]
    assert counts == [2, 3, 1.5, 2]
    assert data["elements"] == pytest.approx((3 + 9 + 2) / 3), "each turn counts the same"
    assert (data["instruction"], data["page"]) == (pytest.approx(40 / 3), pytest.approx(1400 / 3))
    text = bench_text(bench)
    assert "| played here | 2 | 3 | 1.50 | 2.00 | 4.67 | 13.33 | 466.67 |" in text
    assert "| **theirs** | 34 | 191 | 5.62 | 3.16 | 626.3 | 37.4 | 195000 |" in text
    assert "| **theirs**: MT-Mind2Web: Self-MAP (Flan-T5-base) | 2.56 |" in text
    assert describe_data([]) is None
