"""The checklist judge: measures the progress of each goal item in every state.

It follows Web-Shepherd (arXiv 2505.15277): a checklist of the goal, the answers Yes, In Progress or
No for each item, and P(Yes) + P(In Progress) / 2 from the token probabilities, averaged over items.
In this implementation the items are a rubric's criteria, each item has its own call, the state
after an action is judged (not the proposed action), and a step's reward is its increase in
progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, ClassVar

from msgspec import Meta

from prill.errors import NoEvidenceError
from prill.evaluators.evidence import (
    MaxCharsOption,
    action_history,
    request,
    state_text,
    without_claims,
)
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.evaluators.judgement import Judgement, ModelJudge
from prill.evaluators.rubric import RUBRIC, GoalCriteria, Rubric, RubricOptions
from prill.io.cache import DiskCache
from prill.models.calls import ROOM, ask, filled, gather_calls, planned
from prill.models.prompts import quoted, shorten
from prill.models.replies import WordFormat, word_probability
from prill.protocols import Captioner, Form, Message, Reply
from prill.types import Criterion, Findings, StepVerdict, Trajectory, Usage

YES, PART, NO = "yes", "in-progress", "no"
ITEM = WordFormat("done", (YES, PART, NO))
_HALF = 0.5  # the weight of "In Progress", as in Web-Shepherd
_WORD_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class ChecklistSpec(RubricOptions):
    """Settings of `checklist`."""

    tolerance: Annotated[
        float,
        Meta(
            ge=0, lt=1, description="Changes of the progress up to this value count as no change."
        ),
    ] = 0.05
    max_chars: MaxCharsOption = ROOM
    max_tokens: Annotated[
        int, Meta(ge=1, description="Maximum number of tokens in the checklist.")
    ] = 1024


@dataclass(frozen=True, eq=False)
class ChecklistJudge(GoalCriteria, ModelJudge):
    """A process judge that measures progress with a checklist; rewards are differences in progress.

    The model writes the items once for each goal, unless `rubrics` contains them. It then answers
    with one word for each item in each state. The value is P(yes) + P(in progress) / 2 from the
    token probabilities; without probabilities, the word counts 1, 0.5 or 0. The progress of a state
    is the weighted mean of the values. A step's reward is the progress after it minus the progress
    before it, in [-1, 1]. A run is a success if, in the last state, every item is more likely done
    than not. The score is half of the last progress, plus 0.5 for a success.

    A state that was not recorded has the progress of the state before, and its step is flagged. If
    the last state was not recorded, the verdict is unscored.

    Args:
        model: The model that judges.
        spec: The settings.
        goal_cache: Keeps checklists across runs. None: each checklist is kept in this object only.
    """

    captioner: Annotated[Captioner, Meta(description="Captioner that describes states.")]
    spec: ChecklistSpec = field(default=ChecklistSpec(), kw_only=True)
    goal_cache: DiskCache | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "checklist"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubric_criteria", "checklist_state")
    main_prompts: ClassVar[tuple[str, ...]] = ("checklist_state",)
    forms: ClassVar[tuple[Form, ...]] = (ITEM,)

    def _form_texts(self) -> list[str]:
        return [RUBRIC.shape, *super()._form_texts()]

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the images of the states to caption, if captions come from images."""
        return images_read(trajectory.observations, self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of one call for the checklist and one for each item in each state."""
        rubric, calls = self._planned_criteria(trajectory)
        states = planned_captions(trajectory.observations, self.captioner)
        usage = sum((planned(messages, self.spec.max_tokens) for messages in calls), start=Usage())
        return sum(
            (
                planned(self._messages(trajectory, i, text, item.text, ROOM), _WORD_TOKENS)
                for i, text in enumerate(states)
                if text
                for item in rubric.criteria
            ),
            start=usage,
        )

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not trajectory.steps:
            raise NoEvidenceError("the trajectory has no actions")
        texts = await captions(trajectory.observations, self.captioner)
        if not texts[-1]:
            raise NoEvidenceError("the last state cannot be read, so its progress is unknown")
        rubric = await self._criteria(trajectory)
        known = [i for i, text in enumerate(texts) if text]
        items = [(i, item.text) for i in known for item in rubric.criteria]
        values = await gather_calls(
            [self._item(trajectory, i, texts[i] or "", item) for i, item in items]
        )
        of_state: dict[int, list[float]] = {}
        for (i, _), value in zip(items, values, strict=True):
            of_state.setdefault(i, []).append(value)
        progress = _progress(rubric, of_state, len(texts))
        return self._judgement(trajectory, rubric, of_state, progress)

    async def _item(self, trajectory: Trajectory, i: int, text: str, item: str) -> float:
        """Returns P(yes) + P(in progress) / 2 of an item in a state."""
        prompt = self.prompts["checklist_state"]
        reply = await ask(
            self.model,
            lambda room: self._messages(trajectory, i, text, item, room.chars),
            ITEM,
            prompt,
            _WORD_TOKENS,
            self.spec.max_chars,
        )
        return item_value(reply)

    def _messages(
        self, trajectory: Trajectory, i: int, text: str, item: str, room: int
    ) -> tuple[Message, ...]:
        """Returns the request; the item comes last, so that servers can reuse the cached prefix."""
        past = without_claims(trajectory)
        so_far = Trajectory(id=past.id, task=past.task, steps=past.steps[:i])
        state = state_text(text, trajectory.observations[i])
        return filled(
            self.prompts["checklist_state"],
            (),
            goal=request(trajectory),
            actions=quoted("actions", action_history(so_far, room)) if i else "No action so far.",
            state=quoted("state", shorten(state, room)),
            item=quoted("item", " ".join(item.split())),
        )

    def _judgement(
        self,
        trajectory: Trajectory,
        rubric: Rubric,
        of_state: dict[int, list[float]],
        progress: Sequence[float],
    ) -> Judgement:
        steps = []
        for i in range(len(trajectory.steps)):
            # if no state after the last action was recorded, its effect is unknown
            known = i in of_state and i + 1 in of_state
            reward = round(progress[i + 1] - progress[i], 6) if i + 1 < len(progress) else 0.0
            values = of_state.get(i + 1, [])
            steps.append(
                StepVerdict(
                    i,
                    "not_sure"
                    if not known or abs(reward) <= self.spec.tolerance
                    else "away"
                    if reward < 0
                    else "reached"
                    if all(value > _HALF for value in values)
                    else "towards",
                    reward,
                    f"progress {progress[i]:.2f} to {progress[i + 1]:.2f}"
                    if known
                    else "a state around it was not recorded",
                    flagged=not known,
                )
            )
        last = len(progress) - 1
        done = [value > _HALF for value in of_state[last]]
        criteria = tuple(
            Criterion(
                text=item.text,
                weight=item.weight,
                met="met" if met else "not_met",
                step=last if met else None,
                reason=f"{value:.2f} done in the last state",
            )
            for item, met, value in zip(rubric.criteria, done, of_state[last], strict=True)
        )
        unmet = "; ".join(criterion.text for criterion in criteria if criterion.met != "met")
        return Judgement(
            all(done),
            round(progress[last] / 2 + all(done) / 2, 6),
            f"{sum(done)} of {len(done)} items done" + (f"; open: {unmet}" if unmet else ""),
            tuple(steps),
            tuple(step.reward for step in steps),
            Findings(criteria=criteria, process=round(progress[last], 6)),
        )


def item_value(reply: Reply) -> float:
    """Returns P(yes) + P(in progress) / 2 by log-probabilities, else 1, 0.5 or 0 by the word."""
    word = reply.fields[ITEM.verdict]
    shares = [
        word_probability(reply.tokens, ITEM.choices, choice, word) if reply.tokens else None
        for choice in (YES, PART)
    ]
    if shares[0] is None or shares[1] is None:
        return {YES: 1.0, PART: _HALF}.get(word, 0.0)
    return min(1.0, shares[0] + _HALF * shares[1])


def _progress(rubric: Rubric, of_state: dict[int, list[float]], count: int) -> list[float]:
    """Returns the progress of each state.

    A state that was not recorded has the progress of the state before, or 0 at the start.
    """
    weights = [item.weight for item in rubric.criteria]
    found: list[float] = []
    for i in range(count):
        values = of_state.get(i)
        before = found[-1] if found else 0.0
        found.append(before if values is None else fmean(values, weights))
    return found
