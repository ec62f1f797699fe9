"""Outcome judges that make one call, with prill's own prompts or the paper's protocol.

There are two presets. `prill` is the default. `paper` follows the code of arXiv 2404.06474: only
the last state is shown. On the web, the text judge sees the agent's answer and the vision judge
does not (although the prompt printed in the paper has a place for it); on phones it is the other
way round. The reply is two lines, "Thoughts:" and "Status:". Nothing is quoted, and the prompt has
no warnings. The wording of the prompts in both is prill's own. docs/reference/judges.md lists the
remaining differences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.actions.phone import DEVICE_NAMES
from prill.config.values import Config
from prill.errors import NoEvidenceError, UsageError
from prill.evaluators.citations import CitationsOption, label, with_citations
from prill.evaluators.evidence import (
    BYTES,
    DistinctOption,
    MaxCharsOption,
    State,
    action_history,
    address,
    claims,
    endings,
    fewer,
    not_all,
    request,
    select_frames,
    state_text,
    states,
    thought_lines,
    without_claims,
)
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.evaluators.judgement import MAX_TOKENS, Judgement, ModelJudge
from prill.evaluators.references import ReferencesOption, reference_block
from prill.models.calls import ROOM, Room, ask, planned
from prill.models.options import MaxTokensOption
from prill.models.prompts import NONCE, Prompt, clean, quoted, shorten
from prill.models.replies import ReplyFormat, WordFormat, choice_probability, word_probability
from prill.protocols import Captioner, Image, LanguageModel, Message, Reply
from prill.types import Trajectory, Usage

OUTCOMES = ("success", "failure")
INSUFFICIENT = "insufficient-evidence"  # unscored: the record does not show the outcome
STATUS = ReplyFormat("thoughts", "status", (*OUTCOMES, INSUFFICIENT))
PAPER_STATUS = ReplyFormat("thoughts", "status", OUTCOMES, tagged=True)
STATED_STATUS = replace(
    STATUS, number="probability", number_means="how likely it is that the request was carried out"
)
WORD = WordFormat("status", (*OUTCOMES, INSUFFICIENT))
BARE_WORD = replace(WORD, tagged=True)
_WORD_TOKENS = 32  # enough for the longest word and its surrounding text in any tokenizer
_DEVICES = {
    "web": "web sites",
    **DEVICE_NAMES,
    "desktop": "a desktop computer",
    "other": "a computer or phone",
}
PresetName = Literal["prill", "paper"]
PresetOption = Annotated[
    PresetName, Meta(description="Protocol: prill (our own) or paper (arXiv 2404.06474).")
]


@dataclass(frozen=True, slots=True)
class JudgePreset:
    """Settings of a preset. Increase `version` when one changes."""

    version: str
    form: ReplyFormat
    answer_on_the_web: bool
    answer_on_devices: bool

    def shows_answer(self, trajectory: Trajectory, choice: bool | None) -> bool:
        """Returns whether the agent's answer is shown; `choice` is the user's setting, if any."""
        if choice is not None:
            return choice
        return (
            self.answer_on_the_web if trajectory.task.platform == "web" else self.answer_on_devices
        )


_PRILL = JudgePreset("3", STATUS, answer_on_the_web=True, answer_on_devices=True)
_PAPER_TEXT = JudgePreset("2", PAPER_STATUS, answer_on_the_web=True, answer_on_devices=False)
_PAPER_VISION = JudgePreset("2", PAPER_STATUS, answer_on_the_web=False, answer_on_devices=True)


@dataclass(frozen=True, kw_only=True)
class OutcomeSpec(Config):
    """Settings of outcome judges that make one call."""

    preset: PresetOption = "prill"
    frames: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Number of last different images shown (default: the first, the "
            "last two, and the one before a form was submitted)."
        ),
    ] = None
    answer: Annotated[
        bool | None,
        Meta(
            description="Show the agent's answer to the judge, as a claim (default: set by preset)."
        ),
    ] = None
    thoughts: Annotated[
        bool, Meta(description="Show the agent's thoughts to the judge, as claims.")
    ] = False
    probability: Annotated[
        Literal["token", "stated"],
        Meta(
            description="How the score is computed: from the probability of the verdict's "
            "token, or from a number that the model states."
        ),
    ] = "token"
    form: Annotated[
        Literal["thoughts", "verdict", "word"],
        Meta(
            description="Form of the reply: thoughts followed by the verdict; only the "
            "verdict, as an object where the endpoint supports structured output; or the "
            "bare word, for trained judges."
        ),
    ] = "thoughts"
    max_tokens: MaxTokensOption = MAX_TOKENS
    references: ReferencesOption = None
    citations: CitationsOption = False

    def check(self) -> None:
        """Raises UsageError for options that the preset or the reply format does not support."""
        if self.preset == "paper" and self.references is not None:
            raise UsageError("the paper's protocol has no references; use preset prill")
        if self.preset == "paper" and self.frames not in (None, 1):
            raise UsageError(
                "the paper's protocol shows one state; set frames to 1, or use preset prill"
            )
        if self.preset == "paper" and (self.probability != "token" or self.form != "thoughts"):
            raise UsageError(
                "the paper's protocol has a fixed reply form; use probability and form "
                "with preset prill"
            )
        if self.citations and self.preset == "paper":
            raise UsageError("the paper's protocol asks for no citations: use preset prill")
        if self.citations and self.form != "thoughts":
            raise UsageError("a reply of one word cites nothing: leave form at thoughts")
        if self.form != "thoughts" and self.probability == "stated":
            raise UsageError(
                "a reply of one word contains no number; set probability to token, or form "
                "to thoughts"
            )


@dataclass(frozen=True, kw_only=True)
class VLMSpec(OutcomeSpec):
    """Settings of `vlm`."""

    distinct: DistinctOption = BYTES


@dataclass(frozen=True, kw_only=True)
class ModularSpec(OutcomeSpec):
    """Settings of `modular`."""

    # The paper shows one state; more states did not improve its results.
    frames: Annotated[int, Meta(ge=1, description="Number of last states shown to the judge.")] = 1
    max_chars: MaxCharsOption = ROOM


@dataclass(frozen=True, eq=False)
class OutcomeJudge(ModelJudge):
    """Base class of `vlm` and `modular`: one prompt per platform, one call, one verdict.

    With `answer` False, the texts of the agent's messages are also removed from the actions; the
    paper's protocol keeps them when it hides the answer. Rewards follow the paper: 0 for each step,
    and 1 for the last step of a success.
    """

    spec: OutcomeSpec = field(default=OutcomeSpec(), kw_only=True)

    paper: ClassVar[JudgePreset]

    @property
    def _preset(self) -> JudgePreset:
        return self.paper if self.spec.preset == "paper" else _PRILL

    @property
    def _form(self) -> ReplyFormat | WordFormat:
        if self.spec.form != "thoughts":
            return WORD if self.spec.form == "verdict" else BARE_WORD
        return STATED_STATUS if self.spec.probability == "stated" else self._preset.form

    @property
    def _reply_tokens(self) -> int:
        return (
            min(self.spec.max_tokens, _WORD_TOKENS)
            if self.spec.form != "thoughts"
            else self.spec.max_tokens
        )

    @property
    def reads_probabilities(self) -> bool:
        """Whether scores come from log-probabilities."""
        return self.spec.probability == "token"

    def _version(self) -> str:
        return self._preset.version

    def _form_texts(self) -> list[str]:
        return [self._form.instructions(as_json=as_json) for as_json in (True, False)]

    def _names(self) -> tuple[str, ...]:
        return self.paper_prompts if self.spec.preset == "paper" else self.prompt_names

    def _prompt(self, trajectory: Trajectory) -> Prompt:
        """Returns the prompt for the trajectory's platform: the first of two is for the web."""
        return self.prompts[self._names()[0 if trajectory.task.platform == "web" else 1]]

    def _messages(
        self, trajectory: Trajectory, room: int, images: Sequence[Image] = (), **blocks: str
    ) -> tuple[Message, ...]:
        """Returns the filled prompt; images come last, so that servers can reuse the cached prefix.

        `room` limits the actions, in characters; a quarter of it limits the answer and the thoughts
        each.
        """
        prompt = self._prompt(trajectory)
        values = (
            self._paper_values(trajectory, room)
            if self.spec.preset == "paper"
            else self._values(trajectory, room)
        )
        device = {"device": _DEVICES[trajectory.task.platform]} if "device" in prompt.slots else {}
        turns = prompt.fill({**values, **device, **blocks})
        messages = Message("system", (turns["system"],)), Message("user", (turns["user"], *images))
        return self._asking(messages)

    def _values(self, trajectory: Trajectory, room: int) -> dict[str, str]:
        history = without_claims(trajectory) if self.spec.answer is False else trajectory
        answer = self._preset.shows_answer(trajectory, self.spec.answer)
        return {
            "goal": request(trajectory) + reference_block(trajectory, self._references),
            "actions": quoted("actions", action_history(history, room, cited=self._cites)),
            "claims": claims(trajectory, room // 4, answer=answer, thoughts=self.spec.thoughts),
            "code": NONCE,
        }

    def _paper_values(self, trajectory: Trajectory, room: int) -> dict[str, str]:
        """Returns the values in the paper's format: plain text without delimiters."""
        history = without_claims(trajectory) if self.spec.answer is False else trajectory
        lines = []
        if self._preset.shows_answer(trajectory, self.spec.answer):
            lines.append(
                "The agent's answer to the user: "
                f"{shorten(clean(trajectory.answer or ''), room // 4).strip() or 'N/A'}"
            )
        if self.spec.thoughts:
            lines.append(f"The agent's thoughts:\n{thought_lines(trajectory, room // 4)}")
        return {
            "goal": clean(trajectory.task.goal),
            "actions": action_history(history, room, paper=True),
            "claims": "\n\n".join(lines),
        }

    def _label(self, trajectory: Trajectory, when: str) -> str:
        """Returns the label of a state for citations, if they are requested."""
        return f" {label(_numbers(trajectory)[when])}" if self._cites else ""

    async def _ask(
        self,
        trajectory: Trajectory,
        messages: Callable[[Room], Sequence[Message]],
        shown: Callable[[], Iterable[State]],
        room: int = ROOM,
    ) -> Judgement:
        """Makes the call and checks its citations; `shown` returns the states that were sent."""
        judgement = await judge_outcome(
            self.model, messages, self._prompt(trajectory), self._reply_tokens, room, self._form
        )
        if self._cites:
            numbers = _numbers(trajectory)
            states = {numbers[when] for when, _ in shown()}
            judgement = with_citations(judgement, trajectory, states)
        return replace(
            judgement, rewards=compute_rewards(judgement.success, len(trajectory.steps)) or None
        )


@dataclass(frozen=True, eq=False)
class VLMJudge(OutcomeJudge):
    """An end-to-end judge: a vision-language model reads screenshots, actions and answer.

    Source: arXiv 2404.06474, section 3.1.

    Args:
        model: A model that takes images.
        spec: The settings.
    """

    spec: VLMSpec = field(default=VLMSpec(), kw_only=True)

    name: ClassVar[str] = "vlm"
    prompt_names: ClassVar[tuple[str, ...]] = ("web_vision", "device_vision")
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    paper_prompts: ClassVar[tuple[str, ...]] = ("paper_web_vision", "paper_device_vision")
    paper: ClassVar[JudgePreset] = _PAPER_VISION

    def _frames(self, trajectory: Trajectory) -> list[State]:
        count = 1 if self.spec.preset == "paper" else self.spec.frames
        return select_frames(trajectory, count, self.spec.distinct)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the frames that are shown."""
        return [frame.screenshot for _, frame in self._frames(trajectory) if frame.screenshot]

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of the call; zero if no state can show the outcome."""
        frames = self._frames(trajectory)
        return (
            planned(self._request(trajectory, frames, Room()), self._reply_tokens)
            if frames
            else Usage()
        )

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if sum(bool(state.screenshot) for state in trajectory.observations) > 1:
            frames = await asyncio.to_thread(self._frames, trajectory)  # compares files
        else:
            frames = self._frames(trajectory)
        if not frames:
            raise NoEvidenceError(
                "the last state has no screenshot, so the outcome is not visible; the "
                "modular judge reads captions or page text"
            )
        shown = frames

        def messages(room: Room) -> tuple[Message, ...]:
            nonlocal shown
            shown = fewer(frames, room.images)
            return self._request(trajectory, frames, room)

        judgement = await self._ask(trajectory, messages, lambda: shown)
        return replace(judgement, reason=judgement.reason + not_all(len(shown), len(frames)))

    def _request(
        self, trajectory: Trajectory, every: Sequence[State], room: Room
    ) -> tuple[Message, ...]:
        frames = fewer(every, room.images)
        paths = [frame.screenshot for _, frame in frames if frame.screenshot]
        if self.spec.preset == "paper":
            return self._messages(
                trajectory, room.chars, [Image(path, detail="high") for path in paths]
            )
        lines = "\n".join(
            f"Image {i}{self._label(trajectory, when)}: the state {when}."
            for i, (when, _) in enumerate(frames, 1)
        )
        if missing := [when for when, _ in every if when not in dict(frames)]:
            lines += (
                "\nNot shown, since the request has no room for more: the state "
                f"{', '.join(missing)}."
            )
        where = [
            f"Image {i}: {address(frame)}" for i, (_, frame) in enumerate(frames, 1) if frame.url
        ]
        block = "\n\n".join([lines, *([quoted("addresses", "\n".join(where))] if where else [])])
        return self._messages(trajectory, room.chars, [Image(path) for path in paths], frames=block)


@dataclass(frozen=True, eq=False)
class CaptionJudge(OutcomeJudge):
    """A modular judge: a captioner describes the last states, and a language model judges the text.

    Source: arXiv 2404.06474, section 3.2.

    The captioner never sees the goal. If the last state lacks the captioner's input, another state
    that can show the outcome is used instead.

    Args:
        model: The model that judges.
        spec: The settings.
    """

    captioner: Annotated[Captioner, Meta(description="Captioner that describes states.")]
    spec: ModularSpec = field(default=ModularSpec(), kw_only=True)

    name: ClassVar[str] = "modular"
    prompt_names: ClassVar[tuple[str, ...]] = ("web_text", "device_text")
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    paper_prompts: ClassVar[tuple[str, ...]] = ("paper_web_text", "paper_device_text")
    paper: ClassVar[JudgePreset] = _PAPER_TEXT

    def _params(self) -> dict[str, Any]:
        return {"captioner": self.captioner.name, **super()._params()}

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the images of the states to caption, if captions come from images."""
        seen = trajectory.observations
        return images_read(seen[-self.spec.frames :], self.captioner) or images_read(
            (seen[i] for i in self._others(trajectory)), self.captioner
        )

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of the call, without making captions."""
        every = trajectory.observations
        indices = [*range(len(every))[-self.spec.frames :], *self._others(trajectory)]
        texts = dict(
            zip(indices, planned_captions([every[i] for i in indices], self.captioner), strict=True)
        )
        captioned = self._shown(trajectory, texts)
        return (
            planned(self._request(trajectory, captioned, self.spec.max_chars), self._reply_tokens)
            if captioned
            else Usage()
        )

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        captioned = await self._captioned(trajectory)
        return await self._ask(
            trajectory,
            lambda room: self._request(trajectory, captioned, room.chars),
            lambda: (state for state, _ in captioned),
            self.spec.max_chars,
        )

    def _others(self, trajectory: Trajectory) -> list[int]:
        """Returns the indices of other states that can show the outcome, the latest first.

        The last `frames` states are excluded.
        """
        return sorted(
            (i for i in endings(trajectory) if i < len(trajectory.observations) - self.spec.frames),
            reverse=True,
        )

    def _shown(
        self, trajectory: Trajectory, texts: Mapping[int, str | None]
    ) -> list[tuple[State, str]]:
        """Returns the last `frames` states with a text; empty if none can show the outcome."""
        if not any(texts.get(i) for i in endings(trajectory)):
            return []
        every = states(trajectory)
        return [(every[i], text) for i, text in sorted(texts.items()) if text][-self.spec.frames :]

    async def _captioned(self, trajectory: Trajectory) -> list[tuple[State, str]]:
        """Returns the states to show.

        Raises NoEvidenceError if no state that can show the outcome is readable.
        """
        every = trajectory.observations
        last = range(len(every))[-self.spec.frames :]
        error = NoEvidenceError("the last state cannot be read, so the outcome is not visible")
        texts: dict[int, str | None] = {}
        for indices in (last, *([i] for i in self._others(trajectory))):
            try:
                texts |= zip(
                    indices,
                    await captions([every[i] for i in indices], self.captioner),
                    strict=True,
                )
            except NoEvidenceError as failure:
                error = failure
            if captioned := self._shown(trajectory, texts):
                return captioned
        raise error

    def _request(
        self, trajectory: Trajectory, captioned: Sequence[tuple[State, str]], room: int
    ) -> tuple[Message, ...]:
        if self.spec.preset == "paper":
            return self._messages(trajectory, room, state=shorten(clean(captioned[-1][1]), room))
        labels = [self._label(trajectory, when) for (when, _), _ in captioned]
        return self._messages(trajectory, room, state=_state_block(captioned, room, labels))


async def judge_outcome(
    model: LanguageModel,
    messages: Callable[[Room], Sequence[Message]],
    prompt: Prompt,
    max_tokens: int,
    room: int = ROOM,
    form: ReplyFormat | WordFormat = STATUS,
) -> Judgement:
    """Makes one call and returns its judgement; `messages` and `room` are as in `ask`.

    The score is P(success): the number in the reply if the format asks for it; otherwise from the
    reply's log-probabilities if it has some; otherwise 0 or 1. Raises NoEvidenceError if the model
    says that the record does not show the outcome.
    """
    reply = await ask(model, messages, form, prompt, max_tokens, room)
    status = reply.fields[form.verdict]
    reason = reply.fields[form.text] if isinstance(form, ReplyFormat) else ""
    if status == INSUFFICIENT:
        raise NoEvidenceError(
            f"the judge says that the evidence is insufficient{reason and ': '}{reason}"
        )
    success = status == "success"
    score = _score(reply, form, status)
    if score is None:
        score = 1.0 if success else 0.0
    return Judgement(success, round(min(1.0, max(0.0, score)), 6), reason)


def _score(reply: Reply, form: ReplyFormat | WordFormat, status: str) -> float | None:
    """Returns P(success) if the reply contains it, else None."""
    if isinstance(form, ReplyFormat) and form.number:
        return int(reply.fields[form.number]) / 100
    if not reply.tokens:
        return None
    if isinstance(form, WordFormat):
        return word_probability(reply.tokens, OUTCOMES, "success", status)
    return choice_probability(reply.tokens, form.verdict, OUTCOMES, "success", status)


def compute_rewards(success: bool, steps: int) -> tuple[float, ...]:
    """Returns the paper's rewards: 0 for every step, and 1 for the last step of a success."""
    return tuple(float(success and i == steps - 1) for i in range(steps))


def _numbers(trajectory: Trajectory) -> dict[str, int]:
    """Returns the indices of the states by their descriptions."""
    return {when: i for i, (when, _) in enumerate(states(trajectory))}


def _state_block(
    captioned: Sequence[tuple[State, str]], max_chars: int, labels: Sequence[str]
) -> str:
    """Returns the text of the last states, the latest last, in at most `max_chars` in total."""
    share = max_chars // max(1, len(captioned))
    blocks = []
    for i, ((when, state), text) in enumerate(captioned, 1):
        name = "state" if len(captioned) == 1 else f"state-{i}"
        quotation = quoted(name, shorten(state_text(text, state), share))
        blocks.append(f"The state {when}{labels[i - 1]}:\n{quotation}")
    return "\n\n".join(blocks)
