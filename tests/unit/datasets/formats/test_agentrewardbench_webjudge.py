"""The importer on rows made up in the layout of the data set, and on the real files where they
are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.agentrewardbench_webjudge import description, load, load_labels
from prill.evaluators.agreement.agreement import agreement
from prill.types import EvaluatorInfo, LabelRecord, Usage, Verdict
from tests.support.datasets.reference_verdicts import load_reference_verdicts

Recording = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Path]


def step(action: str | None, **more: Any) -> dict[str, Any]:
    return {
        "i": 0,
        "action": action,
        "reasoning": None,
        "caption": None,
        "caption_score": None,
        "screenshot": None,
        **more,
    }


def row(steps: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "shop/agent/shop.improved.7",
        "benchmark": "shop",
        "agent": "agent-x",
        "task_id": "shop.improved.7",
        "goal": "Buy tea",
        "key_points": "secret of the reference judge",
        "n_steps": 9,
        "terminated": True,
        "truncated": None,
        "agent_cost_usd": 0.25,
        "steps": steps,
        **more,
    }


def test_run_becomes_a_trajectory(recording: Recording) -> None:
    caption = "### Reasoning:\nA tea shop.\n\n### Score: 2"
    steps = [
        step(
            "fill('3', 'tea')",
            reasoning="I type",
            caption=caption,
            screenshot="images/a.jpg",
            caption_score=2,
        ),
        step("send_msg_to_user('done')"),
        step(None, caption="**Reasoning**: Thank you page\n\n**Score**: 5", caption_score=5),
    ]
    folder = recording([row(steps)], [])
    (trajectory,) = load(folder)
    assert (
        trajectory.task.id,
        trajectory.task.site,
        trajectory.task.platform,
        trajectory.task.goal,
    ) == ("shop.7", "shop", "web", "Buy tea")
    assert trajectory.steps[0].observation.caption == "A tea shop."
    assert trajectory.steps[0].observation.screenshot == str(folder.resolve() / "images" / "a.jpg")
    assert (
        trajectory.steps[0].action.kind,
        trajectory.steps[0].action.value,
        trajectory.steps[0].thought,
    ) == ("type", "tea", "I type")
    assert trajectory.final is not None
    assert trajectory.final.caption == "Thank you page"
    assert (trajectory.answer, trajectory.steps[1].action.is_final) == ("done", True)
    assert trajectory.metadata == {
        "benchmark_task_id": "shop.improved.7",
        "terminated": True,
        "agent_cost_usd": 0.25,
    }


def test_judge_thoughts_stay_out(recording: Recording) -> None:
    (trajectory,) = load(
        recording([row([step(None, caption="x\n### Score: 4", caption_score=4)])], [])
    )
    assert not re.search(r"secret|score|4", repr(trajectory), re.IGNORECASE)


def test_only_last_message_ends_the_run(recording: Recording) -> None:
    (trajectory,) = load(
        recording([row([step("send_msg_to_user('wait')"), step("click('1')"), step(None)])], [])
    )
    assert [s.action.kind for s in trajectory.steps] == ["message", "click"]
    assert trajectory.answer == "wait"


@pytest.mark.parametrize(
    "caption",
    [
        "A page.\n\n### Score: 3",
        "A page.\n\n**Score**: 3",
        "A page.\n### Score:\n3",
        "A page.\n\n### Score  \n3",
        "A page.\n\n### Score: 1\nNothing relevant is shown.",
        "Score: 3\n",
        "**Reasoning**: A page.\n\nScore: 3",
        "A page.\n\n### Score:",
    ],
)
def test_description_loses_the_grade(caption: str) -> None:
    assert description(caption) == ("" if caption.startswith("Score") else "A page.")


def test_labels_per_annotator_and_oracle(recording: Recording) -> None:
    human = [
        {"annotator": "A", "success": "Successful"},
        {"annotator": "B", "success": "Unsuccessful"},
    ]
    folder = recording(
        [],
        [
            {
                "id": "r",
                "human": human,
                "oracle_reward": 0.4,
                "reference_judges": {"j": {"verdict": "success"}},
            }
        ],
    )
    assert list(load_labels(folder)) == [
        LabelRecord(id="r", success=True, source="human", annotator="A"),
        LabelRecord(id="r", success=False, source="human", annotator="B"),
        LabelRecord(id="r", success=False, source="oracle", note="reward 0.4"),
    ]


def judged(text: str | None, verdict: str | None = "failure") -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {
        "id": "r",
        "reference_judges": {
            "j": {"verdict": verdict, "text": text, "model": "m-1", "usage": usage}
        },
    }


def test_reference_reply_becomes_verdict(recording: Recording) -> None:
    folder = recording([], [judged('Thoughts: Nothing was bought.\n\nStatus: "failure"')])
    (verdict,) = load_reference_verdicts(folder, "j")
    assert verdict == Verdict(
        id="r",
        success=False,
        score=0.0,
        reason="Nothing was bought.",
        usage=Usage(1, 7, 3, usd=None),
        evaluator=EvaluatorInfo("j", "recorded", "m-1"),
    )


@pytest.mark.labelled
def test_real_recordings_read_whole(real: Callable[[str], Path]) -> None:
    folder = real("arb_webjudge")
    items = list(load(folder))
    assert (len(items), len({t.task.id for t in items}), len({t.id for t in items})) == (
        619,
        220,
        619,
    )
    kinds = Counter(s.action.kind for t in items for s in t.steps)
    assert kinds["other"] < 20 < kinds["answer"]
    captions = [o.caption for t in items for o in t.observations if o.caption]
    assert not [c for c in captions if re.search(r"\n[\s#*]*score\W*\d?\W*\Z", c, re.IGNORECASE)]
    assert sum(o.caption is None for t in items for o in t.observations) == 14
    shots = [o.screenshot for t in items for o in t.observations if o.screenshot]
    assert len(shots) == 641
    assert all(Path(shot).is_file() for shot in set(shots))
    assert sum(t.final is not None and t.final.screenshot is not None for t in items) <= 167


@pytest.mark.labelled
def test_real_oracle_agreement_with_people(real: Callable[[str], Path]) -> None:
    labels = list(load_labels(real("arb_webjudge")))
    judge = EvaluatorInfo("oracle", "1")
    verdicts = [
        Verdict(id=label.id, success=label.success, evaluator=judge)
        for label in labels
        if label.source == "oracle"
    ]
    result = agreement(verdicts, labels, source="human", truth="first")
    values = {figure.name: round(figure.value, 3) for figure in result.figures}
    expected = {"accuracy": 0.887, "precision": 0.854, "recall": 0.685, "F1": 0.760, "kappa": 0.687}
    assert values.items() >= expected.items()
    assert (result.confusion.fn, result.confusion.fp, round(result.majority, 3)) == (51, 19, 0.738)


@pytest.mark.labelled
@pytest.mark.parametrize("judge", ["webjudge_7B", "webjudge_o4_mini", "webjudge_gpt4o"])
def test_real_replies_give_recorded_counts(real: Callable[[str], Path], judge: str) -> None:
    labels = [
        label for label in load_labels(real("arb_webjudge")) if isinstance(label, LabelRecord)
    ]
    for source in ("human", "oracle"):
        read, recorded = (
            agreement(
                load_reference_verdicts(real("arb_webjudge"), judge, as_recorded=flag),
                labels,
                source=source,
            )  # type: ignore[arg-type]
            for flag in (False, True)
        )
        assert read.confusion == recorded.confusion
        assert (read.unscored, read.judged) == ({}, recorded.judged)


@pytest.mark.labelled
@pytest.mark.parametrize(
    ("judge", "judged", "counts", "figures"),
    [
        ("webjudge_7B", 596, (93, 28, 415, 60), (0.852, 0.769, 0.608, 0.679, 0.585)),
        ("webjudge_o4_mini", 323, (58, 8, 217, 40), (0.851, 0.879, 0.592, 0.707, 0.613)),
    ],
)
def test_real_reference_judges_figures(
    real: Callable[[str], Path],
    judge: str,
    judged: int,
    counts: tuple[int, ...],
    figures: tuple[float, ...],
) -> None:
    verdicts = [
        v for v in load_reference_verdicts(real("arb_webjudge"), judge) if isinstance(v, Verdict)
    ]
    labels = [
        label for label in load_labels(real("arb_webjudge")) if isinstance(label, LabelRecord)
    ]
    result = agreement(verdicts, labels, source="human", truth="first")
    values = {figure.name: round(figure.value, 3) for figure in result.figures}
    c = result.confusion
    assert (result.judged, (c.tp, c.fp, c.tn, c.fn)) == (judged, counts)
    assert (
        tuple(values[name] for name in ("accuracy", "precision", "recall", "F1", "kappa"))
        == figures
    )
