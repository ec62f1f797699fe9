"""Judges of outcomes by one call: what they are shown, what they are asked, and the paper's protocol beside prill's own.

Two presets. `prill` is our default. `paper` follows arXiv 2404.06474 as its code did it: one state is shown, the last; on
the web its text judge sees the agent's answer and its vision judge does not (although the prompt printed in the paper has a
place for it), on phones it is the other way round; the reply is two lines, "Thoughts:" and "Status:". The wording of our
prompts is our own in both. One deliberate difference: a reply without a verdict, and a failed call, count as failures there
and are unscored here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.actions.phone import DEVICE_NAMES
from prill.errors import NoEvidence, UsageError
from prill.evaluators.evidence import action_history, claims, last_frames, without_claims
from prill.evaluators.frames import images_read, planned_captions
from prill.evaluators.judgement import Judgement, ModelJudge
from prill.models.calls import ROOM, ask, planned, together
from prill.models.prompts import NONCE, Prompt, quoted, shorten
from prill.models.replies import ReplyFormat, choice_probability
from prill.protocols import Captioner, Form, Image, LanguageModel, Message
from prill.types import Trajectory, Usage

STATUS = ReplyFormat("thoughts", "status", ("success", "failure"))
MAX_TOKENS = 1024
_DEVICES = {
    "web": "web sites",
    **DEVICE_NAMES,
    "desktop": "a desktop computer",
    "other": "a computer or phone",
}
PresetName = Literal["prill", "paper"]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a preset decides. Raise `version` when one of these changes."""

    version: str
    form: ReplyFormat
    answer_on_the_web: bool
    answer_on_devices: bool

    def shows_answer(self, trajectory: Trajectory, choice: bool | None) -> bool:
        """Whether the judge is shown the agent's answer; `choice` is the user's own word, if any."""
        if choice is not None:
            return choice
        return self.answer_on_the_web if trajectory.task.platform == "web" else self.answer_on_devices


_TAGGED = replace(STATUS, tagged=True)
_PRILL = Preset("2", STATUS, answer_on_the_web=True, answer_on_devices=True)
_PAPER_TEXT = Preset("1", _TAGGED, answer_on_the_web=True, answer_on_devices=False)
_PAPER_VISION = Preset("1", _TAGGED, answer_on_the_web=False, answer_on_devices=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class VLMSpec:
    """Settings of `vlm`, and of every judge of outcomes by one call."""

    preset: Annotated[PresetName, Meta(description="the protocol: prill's own, or that of arXiv 2404.06474")] = "prill"
    # The paper shows one state; more did not help there.
    frames: Annotated[int, Meta(ge=1, description="last states shown to the judge")] = 1
    answer: Annotated[bool | None, Meta(description="show the agent's answer, as a claim (default: by preset)")] = None
    thoughts: Annotated[bool, Meta(description="show the agent's thoughts, as claims")] = False
    max_tokens: Annotated[int, Meta(ge=1, description="most tokens of a reply")] = MAX_TOKENS


@dataclass(frozen=True, kw_only=True, eq=False)
class ModularSpec(VLMSpec):
    """Settings of `modular`."""

    max_chars: Annotated[int, Meta(ge=1, description="most characters for states, and as many again for actions")] = ROOM


@dataclass(frozen=True, eq=False)
class OutcomeJudge(VLMSpec, ModelJudge):
    """What both judges share: one prompt a platform, one call, one verdict.

    With `answer` False, actions lose the words of the agent's messages too; the paper's protocol keeps them where it hides
    the answer.
    """

    forms: ClassVar[tuple[Form, ...]] = (STATUS,)
    paper: ClassVar[Preset]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset == "paper" and self.frames != 1:
            raise UsageError("the paper's protocol shows one state: leave frames at 1, or use preset prill")

    @property
    def _preset(self) -> Preset:
        return self.paper if self.preset == "paper" else _PRILL

    def _version(self) -> str:
        return self._preset.version

    def _prompt(self, trajectory: Trajectory) -> Prompt:
        """The prompt for the trajectory's platform: the first of the judge's two for the web."""
        return self.prompts[self.prompt_names[0 if trajectory.task.platform == "web" else 1]]

    def _messages(self, trajectory: Trajectory, room: int, images: Sequence[Image] = (), **blocks: str) -> tuple[Message, ...]:
        """The filled prompt; images come after all text, so that servers can reuse the common beginning.

        `room` bounds the actions, and a quarter of it the answer and the thoughts each, in characters.
        """
        prompt = self._prompt(trajectory)
        history = without_claims(trajectory) if self.answer is False else trajectory
        answer = self._preset.shows_answer(trajectory, self.answer)
        values = {
            "goal": quoted("request", trajectory.task.goal),
            "actions": quoted("actions", action_history(history, room)),
            "claims": claims(trajectory, room // 4, answer=answer, thoughts=self.thoughts),
            "code": NONCE,
            **blocks,
        }
        if "device" in prompt.slots:
            values["device"] = _DEVICES[trajectory.task.platform]
        turns = prompt.fill(values)
        return Message("system", (turns["system"],)), Message("user", (turns["user"], *images))


@dataclass(frozen=True, eq=False)
class VLMJudge(OutcomeJudge):
    """End-to-end judge: a vision-language model sees the last screenshots, actions and answer (arXiv 2404.06474, 3.1)."""

    name: ClassVar[str] = "vlm"
    spec: ClassVar[type] = VLMSpec
    prompt_names: ClassVar[tuple[str, ...]] = ("web_vision", "device_vision")
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    paper: ClassVar[Preset] = _PAPER_VISION

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The frames that are shown."""
        return [frame.screenshot for _, frame in last_frames(trajectory, self.frames) if frame.screenshot]

    def estimate(self, trajectory: Trajectory) -> Usage:
        """The call that would be made; nothing where there is no screenshot."""
        return planned(self._request(trajectory, ROOM), self.max_tokens) if self.screenshots(trajectory) else Usage()

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not self.screenshots(trajectory):
            raise NoEvidence("no state of this trajectory has a screenshot; the modular judge reads captions or page text")
        prompt, form = self._prompt(trajectory), self._preset.form
        return await judge_outcome(self.model, lambda room: self._request(trajectory, room), prompt, self.max_tokens, form=form)

    def _request(self, trajectory: Trajectory, room: int) -> tuple[Message, ...]:
        frames = last_frames(trajectory, self.frames)
        lines = "\n".join(f"Image {i}: the state {when}." for i, (when, _) in enumerate(frames, 1))
        images = [Image(frame.screenshot) for _, frame in frames if frame.screenshot]
        return self._messages(trajectory, room, images, frames=lines)


@dataclass(frozen=True, eq=False)
class CaptionJudge(ModularSpec, OutcomeJudge):
    """Modular judge: a captioner turns the last states into text, a language model reasons over it (arXiv 2404.06474, 3.2).

    The captioner never sees the goal.
    """

    captioner: Annotated[Captioner, Meta(description="what reads states")]

    name: ClassVar[str] = "modular"
    spec: ClassVar[type] = ModularSpec
    prompt_names: ClassVar[tuple[str, ...]] = ("web_text", "device_text")
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    paper: ClassVar[Preset] = _PAPER_TEXT

    def _params(self) -> dict[str, Any]:
        return {"captioner": self.captioner.name, **super()._params()}

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The images of the states that are captioned, where captions come from images."""
        return images_read(trajectory.observations[-self.frames :], self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """The call that would be made; no caption is made for it."""
        captions = [text for text in planned_captions(trajectory.observations[-self.frames :], self.captioner) if text]
        return planned(self._request(trajectory, captions, self.max_chars), self.max_tokens) if captions else Usage()

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        states = trajectory.observations[-self.frames :]
        if not states:
            raise NoEvidence("the trajectory has no states")
        captions = await together([self.captioner(state) for state in states])
        return await judge_outcome(
            self.model,
            lambda room: self._request(trajectory, captions, room),
            self._prompt(trajectory),
            self.max_tokens,
            self.max_chars,
            self._preset.form,
        )

    def _request(self, trajectory: Trajectory, captions: Sequence[str], room: int) -> tuple[Message, ...]:
        return self._messages(trajectory, room, state=_state_block(captions, room))


async def judge_outcome(
    model: LanguageModel,
    messages: Callable[[int], Sequence[Message]],
    prompt: Prompt,
    max_tokens: int,
    room: int = ROOM,
    form: ReplyFormat = STATUS,
) -> Judgement:
    """One call for one verdict; `messages` and `room` as in `ask`.

    The score is P(success) by the reply's log-probabilities where there are some, else 0 or 1.
    """
    reply = await ask(model, messages, form, prompt, max_tokens, room)
    status = reply.fields[form.verdict]
    success = status == "success"
    score = choice_probability(reply.tokens, form.verdict, form.choices, "success", status) if reply.tokens else None
    if score is None:
        score = 1.0 if success else 0.0
    return Judgement(success, round(min(1.0, max(0.0, score)), 6), reply.fields[form.text])


def _state_block(texts: Sequence[str], max_chars: int) -> str:
    """Descriptions of the last states, the latest last, sharing `max_chars`."""
    share = max_chars // max(1, len(texts))
    if len(texts) == 1:
        return quoted("state", shorten(texts[0], share))
    return "\n\n".join(quoted(f"state-{i}", shorten(text, share)) for i, text in enumerate(texts, 1))
