"""The record types that all of prill shares.

All are frozen, and their only methods are for serialisation and display. File formats:
docs/reference/file-formats.md.
Points are fractions of the screen: (0, 0) is the top left corner, (1, 1) the bottom right.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from prill.temporary import MemoryImage, image_file
from prill.text import printable

if TYPE_CHECKING:
    from PIL import Image
# The key of the metadata that holds the number of a task's template, as in WebArena.
TEMPLATE = "intent_template_id"


Platform = Literal["web", "android", "ios", "desktop", "other"]
UnscoredReason = Literal[
    "transport",  # the endpoint returned errors, or no answer
    "timeout",  # no response within the time limit
    "refusal",  # the model refused to judge
    "truncated",  # the reply hit its token limit twice
    # the reply contains none of the offered verdicts, or a custom judge raised an exception
    "parse",
    "context",  # the evidence does not fit the model's window
    "budget",  # the budget was spent before the call
    "no_evidence",  # the trajectory lacks evidence that the judge needs
    "input",  # the trajectory or a file that it names is invalid
]
FittedOn = Literal[
    "run",  # the judge, or its calibration, was fitted to the label of this very run
    "task",  # to labels of other runs of its task
    "other",  # to labels of runs of other tasks
    "unknown",  # to labels, and its file does not say of which runs
]
CitationStatus = Literal[
    "shown",  # the judge was shown the state of the step
    "action_shown",  # it was shown the action, and not the state before it
    "not_shown",  # it was shown neither
    "no_such_step",  # the trajectory has no such step
]
Label = Literal["towards", "not_sure", "reached", "away"]
Point = tuple[float, float]
StrPath = str | os.PathLike[str]
AnswerValue = bool | int | float | str | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of an agent.

    Args:
        id: The task's id.
        goal: The instruction.
        platform: The platform that it is done on.
        site: The web site or app.
        start_url: The URL at the start of the episode.
        files: The folder with the files that the agent may upload. Absent: there are none.
        earlier: The finished turns of the same conversation, oldest first.
    """

    id: str = ""
    goal: str
    platform: Platform = "other"
    site: str | None = None
    start_url: str | None = None
    files: str | UnsetType = UNSET
    earlier: tuple[Trajectory, ...] = ()


class _HoldsImage:
    """Keeps the temporary file of an in-memory screenshot alive; not part of the record."""

    __slots__ = ("_image",)
    _image: MemoryImage | None


@dataclass(frozen=True, slots=True, init=False)
class Observation(_HoldsImage):
    """A state of the screen. Every field is optional.

    Args:
        screenshot: The path of an image file, the bytes of an encoded image, or a PIL image. The
            attribute is always a path: that of a temporary file for an image in memory, which
            exists as long as an observation that names it.
        text: The accessibility tree or the text of the page.
        url: The page's address.
        caption: A description of the screen.

    Raises:
        TypeError: The screenshot is anything else.
    """

    screenshot: str | None = None
    text: str | None = None
    url: str | None = None
    caption: str | None = None

    def __init__(
        self,
        screenshot: str | os.PathLike[str] | bytes | Image.Image | None = None,
        text: str | None = None,
        url: str | None = None,
        caption: str | None = None,
    ) -> None:
        path, image = (None, None) if screenshot is None else image_file(screenshot)
        put = object.__setattr__
        put(self, "_image", image)
        put(self, "screenshot", path)
        put(self, "text", text)
        put(self, "url", url)
        put(self, "caption", caption)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles and copies an in-memory image as its bytes."""
        image = getattr(self, "_image", None)  # objects made by a decoder have no such attribute
        screenshot = self.screenshot if image is None else image.read()
        return type(self), (screenshot, self.text, self.url, self.caption)


@dataclass(frozen=True, slots=True)
class Action:
    """One action of the agent.

    Args:
        kind: A word such as click, type, press, scroll, swipe, goto, answer, stop or other.
        text: The readable or raw form.
        target: The element: `[17] link 'Cart'`, or a bare id if nothing else is known.
        point: The position on the screenshot of its step: x and y in [0, 1], from the top left.
        end_point: The end of a swipe or drag, in the same coordinates.
        value: The text that was typed, chosen or answered.

    Raises:
        ValueError: A point is outside [0, 1].
    """

    kind: str
    text: str = ""
    target: str | None = None
    point: Point | None = None
    end_point: Point | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        for name in ("point", "end_point"):
            point = getattr(self, name)
            if point is not None and not all(0.0 <= c <= 1.0 for c in point):
                raise ValueError(
                    f"{name} {list(point)} is outside the screen; expected fractions "
                    "between 0 and 1 (divide pixels by width and height)"
                )

    @property
    def is_final(self) -> bool:
        """Returns True if the agent ends the episode with this action."""
        return self.kind in ("stop", "answer")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an episode.

    Args:
        observation: The state before the action.
        action: The action.
        thought: The agent's reasoning.
    """

    observation: Observation
    action: Action
    thought: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One attempt at a task.

    Args:
        id: The trajectory's id.
        task: The task.
        agent: The agent's name.
        steps: The steps, oldest first.
        final: The state after the last action. None: it was not recorded.
        answer: The agent's answer. None: it gave none.
        metadata: Other recorded data, as JSON values.
        error: Why the episode ended early when the environment failed. It does not imply failure of
            the agent.
    """

    id: str
    task: Task
    agent: str | None = None
    steps: tuple[Step, ...] = ()
    final: Observation | None = None
    answer: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Returns every recorded state, oldest first; the final state is last."""
        states = [step.observation for step in self.steps]
        return tuple(states) if self.final is None else (*states, self.final)

    def _repr_html_(self) -> str:
        # pages are made above the records, so no module here imports them
        return str(import_module("prill.ui.notebook").trajectory_html(self))


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls, tokens, images and cost.

    Args:
        calls: Calls to models.
        prompt_tokens: Tokens of the requests.
        completion_tokens: Tokens of the replies.
        images: Images sent.
        usd: The cost in US dollars. None: the price of some part is unknown; calls and tokens are
            still correct.
        estimated_usd: The estimated part of `usd` for calls that were sent but not answered (timed
            out, cancelled, interrupted), which providers charge for. They are not included in calls
            and tokens. Absent if there are none.
        cached_tokens: The prompt tokens that servers took from a cache; `usd` counts them in full.
            Absent where they are unknown for some call.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    images: int = 0
    usd: float | None = 0.0
    estimated_usd: float | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.images + other.images,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            (self.estimated_usd or 0.0) + (other.estimated_usd or 0.0) or UNSET,
            UNSET
            if any(one.cached_tokens is UNSET and one.calls for one in (self, other))
            or self.cached_tokens is other.cached_tokens is UNSET
            else (self.cached_tokens or 0) + (other.cached_tokens or 0),
        )


@dataclass(frozen=True, slots=True)
class EvaluatorInfo:
    """Identifies a judge by everything that could change a verdict.

    Args:
        name: The judge's name.
        version: The judge's version.
        model: The model that it calls. None: no model.
        prompt: A hash of its prompts' content. None: no prompts.
        params: Its settings.
    """

    name: str
    version: str
    model: str | None = None
    prompt: str | None = None
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Returns name, version and model, for people."""
        return printable(f"{self.name} {self.version}" + (f", {self.model}" if self.model else ""))


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """The judgement of one action.

    Args:
        index: The step, from 0.
        label: The judge's label.
        reward: The reward that the label was mapped to.
        reason: The judge's reasoning.
        flagged: The reply contained none of the offered labels; `label` is then `not_sure`.
    """

    index: int
    label: Label
    reward: float
    reason: str = ""
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One requirement of the goal, and whether it was met.

    Args:
        text: The requirement.
        weight: Its weight relative to the others.
        met: Whether the requirement was met.
        step: The index of the state that shows it, from 0. None: no state does.
        reason: The judge's reasoning.
    """

    text: str
    weight: float = 1.0
    met: Literal["met", "not_met", "insufficient_evidence"]
    step: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FrameGrade:
    """A judge's description and grade of a frame.

    Args:
        states: The indices of the states that look like this, from 0, ascending.
        scores: One score, or one per criterion, from 1 to 5. Empty: the model's reply could not be
            parsed.
        description: What the frame shows.
    """

    states: tuple[int, ...]
    scores: tuple[int, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a user-defined question.

    Args:
        question: The question.
        value: True or False, a number, a label, or an object's fields. None: it could not be
            determined.
        step: The index of the state that shows it, from 0. None: no state shows it.
        reason: The judge's reasoning.
    """

    question: str
    value: AnswerValue
    step: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A step that a judge's reason cites, compared with what the judge was shown.

    Args:
        text: The citation as it is in the reason: `S3`, `step 3` or a range, `S3–S5`.
        step: The index of the step, from 0: 2 for `S3`. The state after the last action comes after
            the last step.
        status: Whether the step exists and was shown.
    """

    text: str
    step: int
    status: CitationStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A judge's findings besides the outcome.

    Args:
        criteria: The requirements of the goal.
        process: The fraction of the criteria's weight that is met, in [0, 1].
        not_executable: Why the task could not be done: a captcha, a login wall, an impossible
            request. None: it could be done.
        side_effects: Unrequested changes.
        key_points: The conditions for reaching the goal.
        frames: The grades of all frames, identified by the last state of each.
        answers: The answers to user-defined questions. Absent: there were none.
        official_label: The success by the rule of a published protocol's authors, also for unscored
            verdicts. None: their rule gives no label. Absent: another judge, or no call was made.
        citations: The steps that the judge's reasons cite. Absent: not requested.
        probability: P(success), in [0, 1], by a judge that gave no outcome because it found the
            evidence insufficient. Absent: it gave an outcome, or no probability.
    """

    criteria: tuple[Criterion, ...] = ()
    process: float | None = None
    not_executable: str | None = None
    side_effects: tuple[str, ...] = ()
    key_points: tuple[str, ...] = ()
    frames: tuple[FrameGrade, ...] = ()
    answers: tuple[Answer, ...] | UnsetType = UNSET
    official_label: bool | UnsetType | None = UNSET
    citations: tuple[Citation, ...] | UnsetType = UNSET
    probability: float | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The verdict of one of several judges.

    Args:
        judge: The judge's name.
        success: Its decision. None: it abstained.
        score: The probability of success, in [0, 1].
        unscored: Why it abstained.
        reason: The judge's reasoning.
        usage: Its calls, tokens and cost.
    """

    judge: str
    success: bool | None
    score: float | None = None
    unscored: UnscoredReason | None = None
    reason: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one trajectory.

    Args:
        id: The trajectory's id.
        success: Whether the goal was reached. None if and only if `unscored` is set.
        score: The probability of success, in [0, 1].
        unscored: Why there is no verdict.
        reason: The judge's reasoning.
        steps: The verdicts on single steps, for judges of steps.
        rewards: One reward per step.
        usage: Calls, tokens and cost of the judgement.
        seconds: The judge's own time, in seconds, excluding time in the queue.
        evaluator: The judge.
        key: Identifies judge and input, so that an equal judgement is not repeated.
        findings: The judge's findings besides the outcome.
        opinions: The verdicts of the combined judges.
        fitted_on: The closest data to this trajectory that the judge was fitted on: `run`, `task`,
            `other` or `unknown`. None: the judge is not fitted.
        record: The digest of the run that was judged (`prill.io.joining.record_digest`). Absent:
            nothing was judged, or an earlier version wrote the verdict.

    Raises:
        ValueError: There are both or neither of `success` and `unscored`, a score outside [0, 1],
            or an unscored verdict with a score or rewards.
    """

    id: str
    success: bool | None = None
    score: float | None = None
    unscored: UnscoredReason | None = None
    reason: str = ""
    steps: tuple[StepVerdict, ...] | None = None
    rewards: tuple[float, ...] | None = None
    usage: Usage = Usage()
    seconds: float = 0.0
    evaluator: EvaluatorInfo
    key: str = ""
    findings: Findings | None = None
    opinions: tuple[Opinion, ...] | None = None
    fitted_on: FittedOn | None = None
    record: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.success is None) != (self.unscored is not None):
            raise ValueError(
                "a verdict must have either a success value or a reason why it is unscored"
            )
        if self.score is not None and not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score {self.score} is outside [0, 1]")
        if self.unscored is not None and (self.score is not None or self.rewards is not None):
            raise ValueError("an unscored verdict must not have a score or rewards")

    def _repr_html_(self) -> str:
        """Returns a card for notebooks; text from judges and pages is escaped."""
        from html import escape

        word = (
            f"unscored: {self.unscored}"
            if self.success is None
            else "success"
            if self.success
            else "failure"
        )
        color = {True: "#1a7f37", False: "#cf222e", None: "#6e7781"}[self.success]
        usage = self.usage
        facts = [
            self.evaluator.name + (f", {self.evaluator.model}" if self.evaluator.model else ""),
            f"calls: {usage.calls}, tokens: {usage.prompt_tokens} + {usage.completion_tokens}",
            # notebooks would render $…$ as a formula
            "cost unknown" if usage.usd is None else f"{usage.usd:.4f} USD",
            f"{self.seconds:.1f} s",
        ]
        score = "" if self.score is None else f", score {self.score:.3f}"
        head = f'<b style="color:{color}">{word}</b>{score} <code>{escape(self.id)}</code>'
        return f"<div><p>{head}</p><p>{escape(self.reason)}</p><p><small>{escape(' · '.join(facts))}</small></p></div>"  # noqa: E501


@dataclass(frozen=True, slots=True)
class StepLabel:
    """A person's label of one action.

    Args:
        index: The step, from 0.
        label: The label.
    """

    index: int
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRecord:
    """The truth about one trajectory, from one source.

    Args:
        id: The trajectory's id.
        success: Whether the goal was reached. None: there is no decision.
        source: The source: people (`human`), or an oracle.
        annotator: The annotator's name.
        note: A remark.
        undecided: Why there is no decision, for example because the task could not be done, or the
            annotator was not sure.
        steps: Labels of single steps.
        inclusion: The chance with which the trajectory was drawn for a label, in (0, 1], where
            chances were unequal. Absent: they were equal, or nobody drew.
        side_effects: Whether the agent changed something that nobody asked for. Absent: nobody
            said so.
        answers: The true answers to questions of the judge `ask`, by the question's text: yes or
            no, a number, a label, or an object's fields. None: the annotator could not tell.
            Absent: there are none.
        record: The digest of the run that the annotator saw, as of a verdict. Absent: unknown.
    """

    id: str
    success: bool | None
    source: str = "human"
    annotator: str | None = None
    note: str | None = None
    undecided: Literal["not_executable", "unsure"] | None = None
    steps: tuple[StepLabel, ...] | None = None
    inclusion: float | UnsetType = UNSET
    side_effects: bool | UnsetType = UNSET
    answers: dict[str, AnswerValue] | UnsetType = UNSET
    record: str | UnsetType = UNSET
