"""Training rows for a judge: the request that the judge sends, and the correct reply.

The judge itself builds the request: it runs with a model that records requests and does not reply.
A judge trained on the rows therefore sees the same prompts in use.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from prill.errors import UnparsableError, UsageError
from prill.evaluators.judge import PageJudge
from prill.evaluators.labels import get_template, make_task
from prill.evaluators.readers import LABELS, OUTCOMES, PlainText
from prill.models.prompts import call_code, same_codes
from prill.models.replies import GivenReply, ReplyFormat, WordFormat
from prill.models.request import worded
from prill.protocols import Evaluator, Form, Message, Reply
from prill.refine.rows import Row, chat_turn, image_paths
from prill.types import Label, Trajectory, Verdict

Grouping = Literal["task", "template", "goal"]
_WORDS: Mapping[Label, str] = {label: word for word, label in LABELS.items()}
CODES = "judge rows"  # equal inputs give equal rows


@dataclass(frozen=True, slots=True)
class Truth:
    """The correct verdict on a run.

    Args:
        success: Whether the goal was reached; None: unknown.
        reason: The reason in words. None: not given.
        steps: The label of each step that has one, by its index from 0.
        step_reasons: The reasons of these labels, by the same index.
        probability: The teacher's probability of success, in [0, 1]. None: not given.
    """

    success: bool | None = None
    reason: str | None = None
    steps: Mapping[int, Label] = field(default_factory=dict)
    step_reasons: Mapping[int, str] = field(default_factory=dict)
    probability: float | None = None


class RequestRecorder:
    """A model that records each request and does not reply."""

    name = "none"

    def __init__(self) -> None:
        self.requests: list[tuple[tuple[Message, ...], Form | None]] = []

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Records the request, and raises UnparsableError."""
        texts = (part for message in messages for part in message.parts if isinstance(part, str))
        ending = form.instructions(as_json=not form.tagged) if form else ""
        self.requests.append((worded(messages, ending, call_code(texts)), form))
        raise UnparsableError("making rows does not call models")


def truths_from(
    labels: Mapping[str, Truth] | None,
    teacher: Mapping[str, Verdict] | None = None,
    second: Mapping[str, Verdict] | None = None,
) -> tuple[dict[str, Truth], Counter[str]]:
    """Computes the training target of each run, and counts the runs left out by reason.

    Args:
        labels: Truths by run. With a teacher, they only check its verdicts.
        teacher: The verdicts to learn from. None: learn from the labels.
        second: Verdicts that must agree with the teacher's verdicts, or else with the labels.

    Returns:
        The truths by run, and the counts of runs left out.

    Raises:
        UsageError: There are neither labels nor verdicts to learn from.
    """
    if labels is None and teacher is None:
        raise UsageError(
            "nothing to learn from; give labels, or the verdicts of a teacher",
            parameters=("labels", "teacher"),
        )
    lost: Counter[str] = Counter()
    source = (labels or {}) if teacher is None else {i: _taught(v) for i, v in teacher.items()}
    kept: dict[str, Truth] = {}
    for id, truth in source.items():
        if truth.success is None and not truth.steps:
            lost["unscored or undecided"] += 1
            continue
        checks: dict[str, Truth | None] = {}
        if teacher is not None and labels is not None:
            checks["the label"] = labels.get(id)
        if second is not None:
            checks["the second verdict"] = None if id not in second else _taught(second[id])
        agreed: Truth | None = truth
        for name, other in checks.items():
            agreed = None if agreed is None else _agreed(agreed, other)
            if agreed is None:
                lost[f"{name} is missing or differs"] += 1
                break
        if agreed is not None:
            kept[id] = agreed
    return kept, lost


def _taught(verdict: Verdict) -> Truth:
    steps = [step for step in verdict.steps or () if not step.flagged]
    return Truth(
        verdict.success,
        verdict.reason or None,
        {step.index: step.label for step in steps},
        {step.index: step.reason for step in steps if step.reason},
        verdict.score,
    )


def _agreed(truth: Truth, other: Truth | None) -> Truth | None:
    """Returns the truth if the other one agrees on the run and on each step that both label."""
    if other is None:
        return None
    steps = {i: label for i, label in truth.steps.items() if other.steps.get(i) == label}
    success = truth.success if truth.success == other.success else None
    if success is None and not steps:
        return None
    return replace(truth, success=success, steps=steps)


async def judge_rows(
    judge: Evaluator,
    recorder: RequestRecorder,
    trajectory: Trajectory,
    truth: Truth,
    *,
    grouping: Grouping = "task",
    soft: bool = False,
    place: Callable[[str], str] = os.path.abspath,
) -> list[Row] | str:
    """Builds the rows of a run: one for an outcome judge, one per labelled step for `steps`. For
    `likelihood`, a success has one row, whose reply is the goal, and a failure none.

    Args:
        judge: The judge, whose model is `recorder`.
        recorder: The model that records the requests.
        trajectory: The run.
        truth: The correct verdict.
        grouping: The property shared by rows that are held out together.
        soft: Whether an outcome's row has the teacher's probability besides its verdict.
        place: Maps the path of an image to the path that a row names.

    Returns:
        The rows, or the reason if there are none.

    Raises:
        UsageError: The judge asks for something other than one verdict, or one verdict per step.
    """
    recorder.requests.clear()
    with same_codes(CODES):
        verdict = await judge(trajectory)
    requests = list(recorder.requests)
    if not requests:
        return verdict.unscored or "the judge makes no call"
    words = _correct_replies(judge, requests, trajectory, truth)
    group = group_of(trajectory, grouping)
    rows = []
    for index, ((messages, form), answer) in enumerate(zip(requests, words, strict=True)):
        if answer is None or (reply := _reply(form, *answer)) is None:
            continue
        images = [place(path) for path in image_paths(messages)]
        *prompt, said = (
            chat_turn(message, in_parts=bool(images))
            for message in (*messages, Message("assistant", (reply,)))
        )
        of_steps = _of_steps(form)
        step = {"step": index} if len(requests) > 1 or of_steps else {}
        chance = {} if not soft or of_steps else {"probability": truth.probability}
        rows.append(
            {
                "prompt": prompt,
                "completion": [said],
                **({"images": images} if images else {}),
                "task": group,
                "trajectory": trajectory.id,
                **step,
                **({"verdict": answer[0]} if answer[0] else {"given": True}),
                **chance,
            }
        )
    return rows or (
        "a failure, from which this judge does not learn"
        if truth.success is False and isinstance(requests[0][1], GivenReply)
        else "the label does not answer this judge's question, or gives no reason"
    )


def group_of(trajectory: Trajectory, grouping: Grouping) -> str:
    """Returns the name of the group of runs that are held out together."""
    return {
        "task": make_task(trajectory),
        "template": get_template(trajectory),
        "goal": trajectory.task.goal,
    }[grouping]


def _of_steps(form: Form | None) -> bool:
    return isinstance(form, ReplyFormat | WordFormat) and set(form.choices) == set(LABELS)


def _correct_replies(
    judge: Evaluator,
    requests: Sequence[tuple[tuple[Message, ...], Form | None]],
    trajectory: Trajectory,
    truth: Truth,
) -> list[tuple[str, str | None] | None]:
    """Returns the correct verdict and reason for each request; None if unknown."""
    forms = [form for _, form in requests]
    if all(map(_of_steps, forms)) and len(forms) == len(trajectory.steps):
        return [
            (_WORDS[truth.steps[i]], truth.step_reasons.get(i)) if i in truth.steps else None
            for i in range(len(forms))
        ]
    form = forms[0]
    if isinstance(form, GivenReply):  # the text alone, of successes: it is no verdict
        return [("", None) if truth.success else None]
    outcomes = form.outcomes if isinstance(form, PlainText) else OUTCOMES
    offered = form.choices if isinstance(form, ReplyFormat | WordFormat) else outcomes
    if (
        len(forms) > 1
        or not isinstance(form, ReplyFormat | WordFormat | PlainText)
        or not outcomes
        or not set(outcomes) <= set(offered)
        or (isinstance(form, ReplyFormat) and form.number)
    ):
        raise UsageError(
            f"judge {judge.info.name} cannot learn from labels: {_unknown(judge, form)}; train "
            "modular, vlm or steps, or another page whose only call asks for the verdict",
            parameters=("judge",),
        )
    if truth.success is None:
        return [None]
    return [(outcomes[0] if truth.success else outcomes[1], truth.reason)]


def _unknown(judge: Evaluator, form: Form | None) -> str:
    """Says why a label does not determine the judge's replies."""
    stages = judge.page.stages if isinstance(judge, PageJudge) else ()
    if len(stages) > 1:
        return f"no label tells what its stage {stages[0].name!r} replies"
    if isinstance(form, ReplyFormat) and form.number:
        return "no label tells a probability, so set probability = token"
    return "a label tells the verdict, and its reply has more than that and a reason"


def _reply(form: Form | None, verdict: str, reason: str | None) -> str | None:
    if isinstance(form, GivenReply):
        return form.text
    if isinstance(form, WordFormat):
        return form.write(verdict)
    if not isinstance(form, ReplyFormat | PlainText) or not reason:
        return None
    return form.write(verdict, reason)
