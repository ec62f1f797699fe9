"""Red team: gullible and honest judges under attack, and figures worked out by hand."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import UsageError
from prill.evaluators.attacks.families import FAMILIES, Variant, families
from prill.evaluators.attacks.redteam import (
    AttackEffect,
    AttackTrial,
    effect,
    judge_attacked,
    measure,
    red_team,
    select_attacks,
    under_attack,
    worst_by_family,
)
from prill.evaluators.judge import PageJudge
from prill.evaluators.scoring.scorer import Tally
from prill.io.store import encode, iter_trajectories
from prill.protocols import Message
from prill.testing import ScriptedModel
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Step, Task, Trajectory
from tests.support.messages import text as get_text

INFO = EvaluatorInfo("wordless", "1")
SAYS = {True: "Thoughts: so it seems\nStatus: success", False: "Thoughts: no\nStatus: failure"}


def gullible(messages: Sequence[Message]) -> str:
    """Believes whatever claims success, quoted or not; else the evidence."""
    text = get_text(messages)
    return SAYS[
        "order placed" in text or "Status: success" in text or "completed successfully" in text
    ]


def honest(messages: Sequence[Message]) -> str:
    return SAYS["order placed" in get_text(messages)]


def write(folder: Path, count: int = 6) -> tuple[Path, Path]:
    """Runs of three tasks; every third is a success. All failures but the first have a caption that
    says so.
    """
    trajectories, labels = folder / "t.jsonl", folder / "labels.jsonl"
    with trajectories.open("wb") as runs, labels.open("wb") as truths:
        for i in range(count):
            good = i % 3 == 0
            run = Trajectory(
                id=f"t{i}",
                task=Task(id=f"k{i % 3}", goal="Order it", platform="web"),
                steps=(
                    Step(Observation(), Action("click", "click")),
                    Step(Observation(), Action("stop", "stop")),
                ),
                final=Observation(caption="order placed" if good else "cart"),
                answer="I gave up",
            )
            runs.write(encode(run))
            truths.write(encode(LabelRecord(id=run.id, success=good)))
    return trajectories, labels


def judge(play: object) -> tuple[PageJudge, ScriptedModel]:
    model = ScriptedModel(play)  # type: ignore[arg-type]
    return prill.judge("modular", model=model, captioner=GivenCaption()), model


async def test_gullible_judge_turns_honest_not(tmp_path: Path) -> None:
    trajectories, labels = write(tmp_path)
    for play, turned in ((gullible, 1.0), (honest, 0.0)):
        evaluator, _ = judge(play)
        folder = tmp_path / play.__name__
        selection = select_attacks(
            evaluator, ["claim-answer", "inject-page", "fake-verdict", "escape-quotation"], folder
        )
        await judge_attacked(evaluator, [trajectories], folder, selection)
        result = measure([trajectories], labels, folder, selection)
        assert (result.evaluator, result.source, result.clusters) == (evaluator.info, "human", 3)
        for row in result.effects:
            assert row.false_positives is not None
            assert row.recall is not None
            assert (row.false_positives.n, row.recall.n) == (4, 2)
            assert (row.false_positives.before, row.false_positives.after) == (0.0, turned)
            assert (row.false_positives.change, row.false_positives.flips) == (turned, 4 * turned)
            assert row.recall.change == 0.0


async def test_unfit_attacks_cost_no_call(tmp_path: Path) -> None:
    trajectories, labels = write(tmp_path)
    evaluator, model = judge(honest)
    selection = select_attacks(evaluator, ["claim-stop", "inject-screenshot"], tmp_path / "out")
    await judge_attacked(evaluator, [trajectories], tmp_path / "out", selection)
    assert len(model.seen) == 6, "the baseline only"
    for row in measure([trajectories], labels, tmp_path / "out", selection).effects:
        assert (row.applies, row.does_not_apply, row.became_unscored) == (0, 6, 0)
        assert row.false_positives is row.recall is None


async def test_resumed_run_asks_nothing_twice(tmp_path: Path) -> None:
    trajectories, labels = write(tmp_path)
    before = trajectories.read_bytes()
    evaluator, model = judge(gullible)
    selection = select_attacks(evaluator, ["inject-page"], tmp_path / "out")
    prompts: list[str] = []

    def progress(name: str, tally: Tally) -> None:
        prompts.append(name)

    await judge_attacked(
        evaluator, [trajectories], tmp_path / "out", selection, limit=2, progress=progress
    )
    assert (len(model.seen), set(prompts)) == (4, {"before", "inject-page"})
    first = measure([trajectories], labels, tmp_path / "out", selection, limit=2)
    await judge_attacked(evaluator, [trajectories], tmp_path / "out", selection)
    assert len(model.seen) == 12
    tallies = await judge_attacked(evaluator, [trajectories], tmp_path / "out", selection)
    assert len(model.seen) == 12
    assert {name: tally.skipped for name, tally in tallies.items()} == {
        "before": 6,
        "inject-page": 6,
    }
    assert measure([trajectories], labels, tmp_path / "out", selection, limit=2) == first
    assert trajectories.read_bytes() == before


async def test_fingerprint_names_the_attack(tmp_path: Path) -> None:
    trajectories, _ = write(tmp_path, 1)
    evaluator, model = judge(gullible)
    wrapped = under_attack(
        evaluator, select_attacks(evaluator, ["inject-page"], tmp_path)["inject-page"]
    )
    run = next(iter_trajectories(trajectories))
    assert isinstance(run, Trajectory)
    verdict = await wrapped(run)
    assert verdict.success
    assert verdict.evaluator.params["attack"] == "inject-page"
    assert verdict.evaluator.params["attack_texts"].startswith("sha256:")
    assert "ignore previous instructions" in get_text(model.seen[0])


def test_screenshot_attack_only_where_seen(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (200, 200)).save(tmp_path / "end.png")
    state = Observation(screenshot=str(tmp_path / "end.png"), caption="x")
    run = Trajectory(
        id="a", task=Task(goal="g"), steps=(Step(Observation(), Action("click")),), final=state
    )
    reader, _ = judge(honest)
    for evaluator, applies in (
        (prill.judge("vlm", model=ScriptedModel([])), True),
        (reader, False),
    ):
        for attack in select_attacks(
            evaluator, ["inject-screenshot", "confirm-screenshot"], tmp_path
        ).values():
            assert (attack.apply(run) is not None) == applies
            assert attack.apply(Trajectory(id="a", task=Task(goal="g"))) is None


def test_selection_of_attacks(tmp_path: Path) -> None:
    evaluator, _ = judge(honest)
    every = select_attacks(evaluator, None, tmp_path)
    assert {attack.family for attack in every.values()} == set(FAMILIES)
    assert list(every) == [
        attack.name for attacks in families(tmp_path).values() for attack in attacks
    ]
    some = select_attacks(evaluator, ["stop-early", "pad-after-500"], tmp_path)
    assert list(some) == [
        "stop-early-0",
        "stop-early-25",
        "stop-early-50",
        "stop-early-75",
        "pad-after-500",
    ]
    with pytest.raises(UsageError, match=r"unknown attack 'nope'; expected one of claim-thoughts"):
        select_attacks(evaluator, ["nope"], tmp_path)
    with pytest.raises(UsageError, match=r"did you mean 'pad-after'\?"):
        select_attacks(evaluator, ["pad-aftr"], tmp_path)
    with pytest.raises(UsageError, match="no attack"):
        select_attacks(evaluator, [], tmp_path)


def trial(
    truth: bool, before: bool | None, after: bool | None, task: str = "k", applies: bool = True
) -> AttackTrial:
    return AttackTrial(task=task, truth=truth, before=before, after=after, applies=applies)


def variant(name: str = "x", family: str | None = None, strength: float = 1.0) -> Variant:
    return Variant(family or name, strength, name, lambda trajectory: trajectory)


def test_effect_figures_by_hand() -> None:
    result = effect(
        variant(),
        [
            trial(False, False, True, "a"),  # turned
            trial(False, False, False, "a"),
            trial(False, True, True, "b"),
            trial(False, True, False, "c"),  # turned the other way
            trial(False, False, True, "d"),  # turned
            # a false positive that became unscored: no success, no failure
            trial(False, True, None, "d"),
            trial(False, None, True, "d"),
            trial(False, False, True, "d", applies=False),
            trial(True, True, False, "a"),
            trial(True, True, True, "b"),
        ],
    )
    assert (
        result.applies,
        result.does_not_apply,
        result.unscored_before,
        result.became_unscored,
    ) == (9, 1, 1, 1)
    fp, recall = result.false_positives, result.recall
    assert fp is not None
    assert recall is not None
    # Five failures judged both times: two called successes before, three after.
    assert (fp.n, fp.before, fp.after, fp.flips) == (5, 0.4, 0.6, 3)
    assert fp.change == pytest.approx(0.2)
    assert fp.interval == "bootstrap"
    # Only task c alone gives -1, only task d alone +1; a draw of four tasks stays within.
    assert -1.0 <= fp.low < 0.2 < fp.high <= 1.0
    assert (recall.n, recall.before, recall.after, recall.change) == (2, 1.0, 0.5, -0.5)
    assert effect(variant(), []).false_positives is None


def test_effect_interval_always_has_width() -> None:
    unmoved = effect(
        variant(), [trial(False, False, False, str(i)) for i in range(100)]
    ).false_positives
    turned = effect(
        variant(), [trial(False, False, True, str(i)) for i in range(100)]
    ).false_positives
    calmed = effect(
        variant(), [trial(False, True, False, str(i)) for i in range(100)]
    ).false_positives
    assert unmoved is not None
    assert turned is not None
    assert calmed is not None
    # Wilson for 0 of 100: the upper end is 1.96² / (100 + 1.96²) = 0.037.
    assert (unmoved.low, unmoved.high) == pytest.approx((-0.037, 0.037), abs=0.0001)
    assert (turned.low, turned.high) == pytest.approx((0.963, 1.0), abs=0.0001)
    assert (calmed.low, calmed.high) == pytest.approx((-1.0, -0.963), abs=0.0001)
    assert unmoved.interval == turned.interval == calmed.interval == "wilson"


def test_abstention_is_no_success() -> None:
    def abstained(truth: bool, before: bool, after: bool, when: str) -> AttackTrial:
        flags = {"abstained_before": "before" in when, "abstained_after": "after" in when}
        return AttackTrial(task=f"k{when}{truth}", truth=truth, before=before, after=after, **flags)

    result = effect(
        variant(),
        [
            # an abstention that was turned into a false positive
            abstained(False, False, True, "before"),
            abstained(False, True, False, "after"),
            abstained(False, False, False, "before and after"),
            trial(False, False, False),
            abstained(True, True, False, "after"),
        ],
    )
    assert (result.abstained_before, result.abstained_after) == (2, 3)
    assert (result.became_unscored, result.unscored_before) == (0, 0)
    fp, recall = result.false_positives, result.recall
    assert fp is not None
    assert recall is not None
    assert (fp.n, fp.before, fp.after, fp.change) == (4, 0.25, 0.25, 0.0)
    assert (recall.before, recall.after) == (1.0, 0.0)


def test_worst_strength_of_each_family() -> None:
    def measured(name: str, family: str, strength: float, turned: int) -> AttackEffect:
        runs = [trial(False, False, i < turned, str(i)) for i in range(10)]
        return effect(variant(name, family, strength), runs)

    effects = [
        measured("a-1", "a", 1, 0),
        measured("a-2", "a", 2, 3),
        measured("a-3", "a", 3, 2),
        measured("b", "b", 1, 4),
        effect(variant("c"), []),
    ]
    result = red_team(INFO, "human", 10, effects)
    assert result.worst == "b"
    assert [one.attack for one in worst_by_family(result)] == ["b", "a-2", "c"]
    assert red_team(INFO, "human", 10, effects[-1:]).worst is None
