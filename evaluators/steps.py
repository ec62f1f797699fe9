"""The step judge: labels each action by the states before and after it.

Source: arXiv 2404.06474, sections 3 and 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.config.values import Config
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.evaluators.citations import CitationsOption, add_citations, check_citations, label
from prill.evaluators.evidence import action_text, request, state_text
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.evaluators.judgement import Judgement, ModelJudge
from prill.evaluators.outcome import PresetOption, compute_rewards
from prill.models.calls import ROOM, ask, gather_calls, planned
from prill.models.options import MaxTokensOption
from prill.models.prompts import NONCE, clean, quoted, shorten
from prill.models.replies import ReplyFormat, WordFormat, choice_probability, word_probability
from prill.protocols import Captioner, Form, Message
from prill.types import Label, Observation, StepVerdict, Trajectory, Usage, Verdict

LABELS: dict[str, Label] = {
    "towards-the-goal": "towards",
    "not-sure": "not_sure",
    "goal-reached": "reached",
    "away-from-the-goal": "away",
}
STEP = ReplyFormat("thoughts", "response", tuple(LABELS))
STEP_WORD = WordFormat("response", tuple(LABELS), tagged=True)
_REACHED = "goal-reached"
_NOT_RECORDED = "(This state was not recorded.)"


@dataclass(frozen=True, kw_only=True)
class StepsSpec(Config):
    """Settings of `steps`. The paper requires away < 0 <= towards < 1 and gives no values."""

    preset: PresetOption = "prill"
    towards: Annotated[
        float, Meta(ge=0, lt=1, description="Reward of a step towards the goal.")
    ] = 0.5
    away: Annotated[float, Meta(lt=0, description="Reward of a step without progress.")] = -0.5
    last_state: Annotated[
        bool | None,
        Meta(description="Show the state after the last action (default: set by preset)."),
    ] = None
    form: Annotated[
        Literal["thoughts", "word"],
        Meta(description="Form of the reply: thoughts followed by the label, or only the label."),
    ] = "thoughts"
    max_tokens: MaxTokensOption = 512
    max_chars: Annotated[
        int, Meta(ge=1, description="Maximum number of characters for both states together.")
    ] = ROOM
    citations: CitationsOption = False

    def check(self) -> None:
        """Validates that the reply can contain citations if they are requested.

        Raises:
            UsageError: It cannot.
        """
        if self.citations and self.preset == "paper":
            raise UsageError("the paper's protocol asks for no citations: use preset prill")
        if self.citations and self.form != "thoughts":
            raise UsageError("a reply of one word cites nothing: leave form at thoughts")


@dataclass(frozen=True, eq=False)
class StepJudge(ModelJudge):
    """A judge that makes one call for each action, with captions of the states before and after it.

    The reward of a step is 1 if it reached the goal, `towards` for progress, else `away`. A run is
    a success if a step reached the goal. The score is the highest probability of reaching the goal
    among the steps.

    The preset `paper` uses a single user message, requests two lines of text and shows "Terminated"
    instead of the state after the last action. The preset `prill` shows that state if it was
    recorded, because it contains evidence.

    A reply without a label counts as not_sure and is flagged. If no reply has a label, the verdict
    of the `prill` preset is unscored. If any other call fails, the whole trajectory is unscored.

    Args:
        model: The model that judges.
        spec: The settings.
    """

    captioner: Annotated[Captioner, Meta(description="Captioner that describes states.")]
    spec: StepsSpec = field(default=StepsSpec(), kw_only=True)

    name: ClassVar[str] = "steps"
    version: ClassVar[str] = "2"
    prompt_names: ClassVar[tuple[str, ...]] = ("steps",)
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    paper_prompts: ClassVar[tuple[str, ...]] = ("paper_steps",)
    forms: ClassVar[tuple[Form, ...]] = (STEP,)

    @property
    def _form(self) -> ReplyFormat | WordFormat:
        if self.spec.form == "word":
            return STEP_WORD
        return replace(STEP, tagged=self.spec.preset == "paper")

    def _form_texts(self) -> list[str]:
        if self.spec.form == "thoughts":
            return super()._form_texts()
        return [STEP_WORD.instructions(as_json=False)]

    def _names(self) -> tuple[str, ...]:
        return self.paper_prompts if self.spec.preset == "paper" else self.prompt_names

    @property
    def _shows_last_state(self) -> bool:
        return self.spec.preset == "prill" if self.spec.last_state is None else self.spec.last_state

    def _params(self) -> dict[str, Any]:
        params = super()._params() | {"last_state": self._shows_last_state}
        # Omitted at its default, so that older verdicts keep their fingerprint.
        if self.spec.form == "thoughts":
            del params["form"]
        return params

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the images of the states to caption, if captions come from images."""
        return images_read(self._states(trajectory), self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of one call for each action, without making captions."""
        states = planned_captions(self._states(trajectory), self.captioner)
        calls = (
            self._messages(trajectory, i, states, self.spec.max_chars)
            for i in range(len(trajectory.steps))
        )
        return sum((planned(messages, self.spec.max_tokens) for messages in calls), start=Usage())

    def _states(self, trajectory: Trajectory) -> tuple[Observation, ...]:
        return (
            trajectory.observations
            if self._shows_last_state
            else trajectory.observations[: len(trajectory.steps)]
        )

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not trajectory.steps:
            raise NoEvidenceError("the trajectory has no actions")
        states = await captions(self._states(trajectory), self.captioner)
        results = await gather_calls(
            [self._step(trajectory, i, states) for i in range(len(trajectory.steps))]
        )
        steps = tuple(step for step, _ in results)
        if self.spec.preset == "prill" and all(step.flagged for step in steps):
            raise UnparsableError(f"no reply contains a label; the first: {steps[0].reason}")
        reached = any(step.label == "reached" for step in steps)
        score = round(min(1.0, max(probability for _, probability in results)), 6)
        judgement = Judgement(
            reached, score, _summary(steps), steps, tuple(step.reward for step in steps)
        )
        if not self._cites:
            return judgement
        known = {i for i, state in enumerate(states) if state is not None}
        return add_citations(
            judgement,
            (
                citation
                for i, step in enumerate(steps)
                if not step.flagged
                for citation in check_citations(step.reason, trajectory, known & {i, i + 1}, {i})
            ),
        )

    async def _step(
        self, trajectory: Trajectory, i: int, states: Sequence[str | None]
    ) -> tuple[StepVerdict, float]:
        prompt = self.prompts[self._names()[0]]
        try:
            reply = await ask(
                self.model,
                lambda room: self._messages(trajectory, i, states, room.chars),
                self._form,
                prompt,
                self.spec.max_tokens,
                self.spec.max_chars,
            )
        except UnparsableError as error:
            return StepVerdict(i, "not_sure", self.spec.away, str(error), flagged=True), 0.0
        word = reply.fields[STEP.verdict]
        label = LABELS[word]
        probability = None
        if reply.tokens and self.spec.form == "word":
            probability = word_probability(reply.tokens, STEP.choices, _REACHED, word)
        elif reply.tokens:
            probability = choice_probability(
                reply.tokens, STEP.verdict, STEP.choices, _REACHED, word
            )
        if probability is None:
            probability = float(word == _REACHED)
        reward = {"reached": 1.0, "towards": self.spec.towards}.get(label, self.spec.away)
        return StepVerdict(i, label, reward, reply.fields.get(STEP.text, "")), probability

    def _messages(
        self, trajectory: Trajectory, i: int, states: Sequence[str | None], room: int
    ) -> tuple[Message, ...]:
        prompt = self.prompts[self._names()[0]]
        if self.spec.preset == "paper":
            return (
                Message(
                    "user",
                    (prompt.fill(self._paper_values(trajectory, i, states, room // 2))["user"],),
                ),
            )
        turns = prompt.fill(self._values(trajectory, i, states, room // 2))
        return self._asking(
            (Message("system", (turns["system"],)), Message("user", (turns["user"],)))
        )

    def _values(
        self, trajectory: Trajectory, i: int, states: Sequence[str | None], share: int
    ) -> dict[str, str]:
        def block(name: str, number: int) -> str:
            text = states[number]
            shown = (
                _NOT_RECORDED if text is None else state_text(text, trajectory.observations[number])
            )
            mark = f"{label(number)}\n" if self._cites else ""
            return mark + quoted(name, shorten(shown, share))

        step = trajectory.steps[i]
        action = action_text(step.action, trajectory.task.platform, step.observation.text or "")
        return {
            "goal": request(trajectory),
            "before": block("before", i),
            "action": quoted("action", shorten(action, share)),
            "after": block("after", i + 1) if i + 1 < len(states) else "Terminated",
            "code": NONCE,
        }

    def _paper_values(
        self, trajectory: Trajectory, i: int, states: Sequence[str | None], share: int
    ) -> dict[str, str]:
        """Returns the values in the paper's format: plain text without delimiters."""

        def plain(text: str | None) -> str:
            return shorten(clean(text or _NOT_RECORDED), share)

        step = trajectory.steps[i]
        return {
            "goal": clean(trajectory.task.goal),
            "before": plain(states[i]),
            "action": plain(
                action_text(
                    step.action, trajectory.task.platform, step.observation.text or "", paper=True
                )
            ),
            "after": plain(states[i + 1]) if i + 1 < len(states) else "Terminated",
        }


def kept_steps(
    verdict: Verdict, threshold: float, *, stop_at_reached: bool = True
) -> tuple[int, ...]:
    """Selects the steps worth imitating.

    Args:
        verdict: The verdict of a step judge. An unscored verdict keeps no step.
        threshold: The minimum reward of a kept step.
        stop_at_reached: Drop the steps after the first step that reached the goal.

    Returns:
        The indices of the steps, from 0, ascending.

    Raises:
        UsageError: The verdict has no step labels.
    """
    if verdict.unscored is not None:
        return ()
    if verdict.steps is None:
        raise UsageError(
            f"the verdict on {verdict.id} by {verdict.evaluator.name} has no labels of "
            "steps; use the judge `steps`"
        )
    indices = []
    for step in sorted(verdict.steps, key=lambda step: step.index):
        if step.reward >= threshold:
            indices.append(step.index)
        if stop_at_reached and step.label == "reached":
            break
    return tuple(indices)


def outcome_rewards(verdict: Verdict, trajectory: Trajectory) -> tuple[float, ...] | None:
    """Converts the outcome of a trajectory into step rewards.

    Args:
        verdict: The verdict.
        trajectory: The trajectory that was judged.

    Returns:
        One reward per step: 0, and 1 for the last step of a success. None for an unscored verdict.
    """
    if verdict.success is None:
        return None
    return compute_rewards(verdict.success, len(trajectory.steps))


def _summary(steps: Sequence[StepVerdict]) -> str:
    first = next((step for step in steps if step.label == "reached"), None)
    if first is not None:
        return f"action {first.index + 1} reached the goal: {first.reason}"
    counts = Counter(
        "without a label" if step.flagged else step.label.replace("_", " ") for step in steps
    )
    return "no action reached the goal: " + ", ".join(
        f"{count} {label}" for label, count in counts.most_common()
    )
