"""The records that every part of prill shares: read this page first.

All are frozen and hold no behaviour but how they are written and shown. File formats built from them: docs/formats.md.
Points are fractions of the screen: (0, 0) is the top left corner, (1, 1) the bottom right.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from prill.temporary.images import MemoryImage, image_file

if TYPE_CHECKING:
    from PIL import Image


Platform = Literal["web", "android", "ios", "desktop", "other"]
UnscoredReason = Literal[
    "transport",  # the endpoint answered with errors, or not at all
    "timeout",  # no answer within the time limit
    "refusal",  # the model declined to judge
    "truncated",  # the reply was cut by its token limit, twice
    "parse",  # the reply holds no verdict that was offered, or a judge of one's own raised an exception
    "context",  # the evidence does not fit the model's window
    "budget",  # the money limit was reached before the call
    "no_evidence",  # the evaluator needs something the trajectory lacks
    "input",  # the trajectory, or a file it names, is broken
]
FittedOn = Literal[
    "run",  # the judge, or its calibration, was fitted to the label of this very run
    "task",  # to labels of other runs of its task
    "other",  # to labels of runs of other tasks
    "unknown",  # to labels, and its file does not say of which runs
]
Label = Literal["towards", "not_sure", "reached", "away"]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the agent was asked to do. `earlier` holds the finished turns of the same conversation."""

    id: str = ""
    goal: str
    platform: Platform = "other"
    site: str | None = None
    start_url: str | None = None
    earlier: tuple[Trajectory, ...] = ()


class _HoldsImage:
    """Keeps the file of a screenshot that was handed over in memory; no part of the record."""

    __slots__ = ("_image",)
    _image: MemoryImage | None


@dataclass(frozen=True, slots=True, init=False)
class Observation(_HoldsImage):
    """What could be seen at one moment; every part is optional.

    `screenshot` is a file path, `text` the accessibility tree or page text, `caption` a description of the screen. A
    screenshot may be handed over as a path, as the bytes of an encoded image or as a PIL image; the attribute is then the
    path of a temporary file, which is there for as long as an observation that names it. Raises TypeError for anything else.
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
        """For pickles and copies: an image in memory goes along as its bytes."""
        image = getattr(self, "_image", None)  # what a decoder made holds none
        screenshot = self.screenshot if image is None else image.read()
        return type(self), (screenshot, self.text, self.url, self.caption)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the agent did. `kind` is a word such as click, type, press, scroll, swipe, goto, answer, stop or other.

    `text` is the readable (or raw) form, `target` names the element (`[17] link 'Cart'`, a bare id where nothing tells more),
    `value` is what was typed, chosen or said, `point` the place on the screenshot of its step.
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
                    f"{name} {list(point)} is outside the screen: give fractions between 0 and 1 (pixels by width and height)"
                )

    @property
    def is_final(self) -> bool:
        """True when the agent ends the episode with this action."""
        return self.kind in ("stop", "answer")


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen, what was then done, and what the agent said it was thinking."""

    observation: Observation
    action: Action
    thought: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One attempt at a task. `final` is the state after the last action; None when it was not recorded.

    `error` says why the episode broke off when the environment failed; it says nothing about success.
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
        """Every recorded state, oldest first; the final one last."""
        states = [step.observation for step in self.steps]
        return tuple(states) if self.final is None else (*states, self.final)


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent. `usd` is None when the price of any part is unknown; tokens and calls are then still right.

    `estimated_usd` is the part of `usd` for calls that were sent and brought no answer (timed out, cancelled, broken off),
    which providers charge for: by estimate, and counted neither as calls nor as tokens. It is absent where there are none.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    images: int = 0
    usd: float | None = 0.0
    estimated_usd: float | UnsetType = UNSET

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.images + other.images,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            (self.estimated_usd or 0.0) + (other.estimated_usd or 0.0) or UNSET,
        )


@dataclass(frozen=True, slots=True)
class EvaluatorInfo:
    """Who judged: enough to tell two verdicts of different judges apart. `prompt` is a content hash."""

    name: str
    version: str
    model: str | None = None
    prompt: str | None = None
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """The judgement of one action: its place in `steps`, a label, the reward the label was mapped to, and why.

    `flagged`: the reply held no label that was offered, and not_sure stands in for it.
    """

    index: int
    label: Label
    reward: float
    reason: str = ""
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that the goal asks for, and whether it was done. `step` is the state that shows it, from 0; None: none does."""

    text: str
    weight: float = 1.0
    met: Literal["met", "not_met", "insufficient_evidence"]
    step: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FrameGrade:
    """What a frame shows and how much it tells, from 1 to 5, of what the goal asks for: one score, or one a criterion.

    `states` are the states that looked like this, from 0, rising. No scores: the model's reply could not be read.
    """

    states: tuple[int, ...]
    scores: tuple[int, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a judge found besides the outcome.

    `process` is the share of the criteria's weight that is met, in [0, 1]; `not_executable` says why nobody could have done
    the task (a captcha, a login wall, an impossible wish); `side_effects` are changes that nobody asked for. `key_points` are
    what must hold for the goal to be reached, and `frames` the grades of all frames, by the last state of each.
    """

    criteria: tuple[Criterion, ...] = ()
    process: float | None = None
    not_executable: str | None = None
    side_effects: tuple[str, ...] = ()
    key_points: tuple[str, ...] = ()
    frames: tuple[FrameGrade, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one judge of several said, and what that cost. `success` is None when it abstained; `unscored` has the reason."""

    judge: str
    success: bool | None
    score: float | None = None
    unscored: UnscoredReason | None = None
    reason: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one trajectory. `success` is None exactly when `unscored` says why there is none.

    `score` is the probability of success in [0, 1]; `rewards` has one number a step; `key` identifies evaluator + input;
    `seconds` is the judge's own time, without waiting for its turn to call a model; `opinions` are those of the judges
    that were combined. `fitted_on` says what a judge that was fitted to labels has seen of this run; None: nothing was fitted.
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

    def __post_init__(self) -> None:
        if (self.success is None) != (self.unscored is not None):
            raise ValueError("a verdict has either a success value or a reason why it is unscored")
        if self.score is not None and not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score {self.score} is outside [0, 1]")
        if self.unscored is not None and (self.score is not None or self.rewards is not None):
            raise ValueError("an unscored verdict carries no score and no rewards")

    def _repr_html_(self) -> str:
        """A card for notebooks: what judges and pages say is text in it, never markup."""
        from html import escape

        word = f"unscored: {self.unscored}" if self.success is None else "success" if self.success else "failure"
        color = {True: "#1a7f37", False: "#cf222e", None: "#6e7781"}[self.success]
        usage = self.usage
        facts = [
            self.evaluator.name + (f", {self.evaluator.model}" if self.evaluator.model else ""),
            f"calls: {usage.calls}, tokens: {usage.prompt_tokens} + {usage.completion_tokens}",
            "cost unknown" if usage.usd is None else f"{usage.usd:.4f} USD",  # notebooks take $…$ for a formula
            f"{self.seconds:.1f} s",
        ]
        score = "" if self.score is None else f", score {self.score:.3f}"
        head = f'<b style="color:{color}">{word}</b>{score} <code>{escape(self.id)}</code>'
        return f"<div><p>{head}</p><p>{escape(self.reason)}</p><p><small>{escape(' · '.join(facts))}</small></p></div>"


@dataclass(frozen=True, slots=True)
class StepLabel:
    """What a person says of one action: its place in `steps`, and a label."""

    index: int
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRecord:
    """The truth about one trajectory from one source: a person, a rule-based oracle.

    `success` is None when there is no decision; `undecided` may say why: nobody could have done the task, or not sure.
    """

    id: str
    success: bool | None
    source: str = "human"
    annotator: str | None = None
    note: str | None = None
    undecided: Literal["not_executable", "unsure"] | None = None
    steps: tuple[StepLabel, ...] | None = None
