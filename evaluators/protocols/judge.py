"""The judge that runs a published protocol: its stages, in order, over one model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.errors import NoEvidenceError, TruncatedError, UnparsableError
from prill.evaluators.evidence import are_withheld, endings, fewer, not_all
from prill.evaluators.frames import Frame, captions, images_read, planned_captions
from prill.evaluators.judgement import Judgement, ModelJudge, make_verdict
from prill.evaluators.protocols.presets import (
    Protocol,
    Stage,
    list_prompts,
    load_protocol,
)
from prill.evaluators.protocols.readers import (
    READERS,
    Grade,
    Reading,
    StageReader,
    VerdictReader,
)
from prill.evaluators.protocols.rubric import (
    complete_scores,
    compute_points,
    conditional_criteria,
    select_relevant,
)
from prill.evaluators.protocols.texts import SLOTS, Filling, Scene
from prill.io.images import file_hash
from prill.models.calls import Room, ask, gather_calls, planned
from prill.models.prompts import NONCE, Prompt, content_hash, prompt_set
from prill.protocols import Captioner, Form, Image, Message, Reply
from prill.types import Findings, FrameGrade, Trajectory, UnscoredReason, Usage, Verdict

# The place of the images in a user turn.
_IMAGES = "\ue001"
# No call was made, or none that the authors' code would have made.
_WITHOUT_CALL: frozenset[UnscoredReason] = frozenset({"budget", "no_evidence", "input"})
_LABELS = {"failure": False, "none": None}


@dataclass(frozen=True, kw_only=True)
class ProtocolSpec(Config):
    """Settings of `protocol`."""

    protocol: Annotated[
        str,
        Meta(
            description="Preset, for example webjudge or arb-axtree (the documentation lists all)."
        ),
    ]

    def check(self) -> None:
        """Raises UsageError if there is no such preset."""
        load_protocol(self.protocol)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a stage, about one subject."""

    stage: Stage
    messages: Callable[[Room], tuple[Message, ...]]
    # the images of the subject, which identify the call in a plan
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """An expected call and its usage; calls with an equal key are answered once if replies are
    kept.
    """

    key: str
    usage: Usage


@dataclass(slots=True)
class _Official:
    """The label by the authors' rule, as soon as the reply with the verdict is there."""

    label: bool | None = None
    known: bool = False


_Program = Generator[list[_Call], list[Any], Reply | None]


@dataclass(frozen=True, eq=False)
class ProtocolJudge(ModelJudge):
    """A judge by a published protocol: what is shown, in which order, and which replies count.

    Verdicts have the label by the authors' own rule in `findings.official_label`, also unscored
    ones. It is absent if no call was made.

    Args:
        model: The model that judges.
    """

    captioner: Annotated[
        Captioner | None,
        Meta(
            description="Captioner that describes states, instead of screenshots (default: as "
            "published)."
        ),
    ] = None
    spec: ProtocolSpec = field(kw_only=True)

    name: ClassVar[str] = "protocol"
    package: ClassVar[str] = "prill.evaluators.protocols"
    prompt_names: ClassVar[tuple[str, ...]] = list_prompts()
    main_prompts: ClassVar[tuple[str, ...]] = ("webjudge_verdict",)
    forms: ClassVar[tuple[Form, ...]] = ()

    @property
    def reads_probabilities(self) -> bool:
        """Returns False: a score is 0 or 1."""
        return False

    @cached_property
    def protocol(self) -> Protocol:
        """The preset."""
        return load_protocol(self.spec.protocol)

    @cached_property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts in use, by name."""
        names = self._names()
        return prompt_set(self.package, names, names[-1:], self.prompt)

    @property
    def citation(self) -> str:
        """Returns the line that says how verdicts were made."""
        captioner = None if self.captioner is None else self.captioner.name
        return self.protocol.cite(self.info.prompt, self.model.name, captioner)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the screenshots, if the protocol shows any."""
        if not self.protocol.shows_pictures:
            return images_read(trajectory.observations, self.captioner) if self.captioner else ()
        return images_read(trajectory.observations, self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict, with the official label."""
        official = _Official()
        verdict = await make_verdict(self, trajectory, lambda: self._run(trajectory, official))
        if not official.known:
            if verdict.unscored in _WITHOUT_CALL:
                return verdict
            official.label = _LABELS[self.protocol.error]
        findings = replace(verdict.findings or Findings(), official_label=official.label)
        return replace(verdict, findings=findings)

    def calls(self, trajectory: Trajectory) -> list[PlannedCall]:
        """Returns the expected calls, in order, without making any; an upper bound. There are none
        without evidence.
        """
        texts = (
            planned_captions(trajectory.observations, self.captioner) if self.captioner else None
        )
        plan: list[PlannedCall] = []
        if self._needs_answer(trajectory):
            return plan
        try:
            program = self._program(self._scene(trajectory, texts))
            batch = next(program)
            while True:
                for call in batch:
                    usage = planned(call.messages(Room(self.protocol.chars)), call.stage.max_tokens)
                    plan.append(PlannedCall(_key(call, self.protocol.chars), usage))
                batch = program.send([_typical(call.stage) for call in batch])
        except (StopIteration, NoEvidenceError):
            return plan

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of all calls, an upper bound."""
        return sum((call.usage for call in self.calls(trajectory)), start=Usage())

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        return await self._run(trajectory, _Official())

    async def _run(self, trajectory: Trajectory, official: _Official) -> Judgement:
        if self._needs_answer(trajectory):
            if self.protocol.no_answer == "none":
                raise NoEvidenceError(
                    "the agent gave no answer, which this protocol does not judge"
                )
            official.label, official.known = False, True
            return Judgement(
                False, 0.0, "the agent gave no answer, which is a failure in this protocol"
            )
        texts = await captions(trajectory.observations, self.captioner) if self.captioner else None
        scene = self._scene(trajectory, texts)
        program = self._program(scene)
        batch = next(program)
        while batch[0].stage is not self.protocol.stages[-1]:
            batch = program.send(await gather_calls([self._answer(call) for call in batch]))
        reader = READERS[batch[0].stage.reads]
        assert isinstance(reader, VerdictReader)
        reply = await self._verdict(batch[0], reader, official)
        reading = reader.read(reply)
        return self._concluded(scene, reading)

    def _needs_answer(self, trajectory: Trajectory) -> bool:
        """Returns whether the agent did not answer, and the protocol makes no call then."""
        answered = trajectory.answer or are_withheld(trajectory)
        return not answered and self.protocol.no_answer != "ask"

    async def _answer(self, call: _Call) -> Any:
        """Returns the result of a call before the verdict."""
        reader = READERS[call.stage.reads]
        assert isinstance(reader, StageReader)
        try:
            return reader.read(await self._ask(call, reader.form))
        except UnparsableError:
            if not call.stage.optional:
                raise
            return reader.missing

    async def _verdict(self, call: _Call, reader: VerdictReader, official: _Official) -> Reply:
        """Returns the reply with the verdict, and notes the authors' label for it."""
        try:
            reply = await self._ask(call, reader.form)
        except (UnparsableError, TruncatedError) as error:
            official.label = reader.official(getattr(error, "text", ""))
            official.known = True
            raise
        official.label, official.known = reader.official(reply.text), True
        return reply

    async def _ask(self, call: _Call, form: Form) -> Reply:
        stage = call.stage
        return await ask(
            self.model,
            call.messages,
            form,
            self.prompts[stage.prompt],
            stage.max_tokens,
            self.protocol.chars,
        )

    def _concluded(self, scene: Scene, reading: Reading) -> Judgement:
        results = scene.results
        findings = reading.findings
        if points := results.get("points"):
            lines = (line.strip() for line in str(points).splitlines())
            findings = replace(findings, key_points=tuple(line for line in lines if line))
        notes = [scene.remark] if scene.remark else []
        if grades := results.get("grades"):
            pairs = list(zip(scene.frames, grades, strict=True))
            findings = replace(
                findings,
                frames=tuple(
                    FrameGrade(
                        frame.states, (grade.score,) if grade.score else (), grade.description
                    )
                    for frame, grade in pairs
                ),
            )
            if unread := sum(not grade.score for grade in grades):
                notes.append(f" [{unread} of {len(pairs)} frames without a grade were left out]")
        if "rubric" in results:
            criteria, share = compute_points(results)
            effects = tuple(effect.description for effect in results["effects"].side_effects)
            findings = replace(findings, criteria=criteria, process=share, side_effects=effects)
        return Judgement(
            reading.success,
            float(reading.success),
            reading.reason + "".join(notes),
            findings=findings,
        )

    # The calls

    def _scene(self, trajectory: Trajectory, texts: Sequence[str | None] | None) -> Scene:
        """Returns the evidence. Raises NoEvidenceError if no state that can show the outcome is
        recorded in the form that the protocol shows.
        """
        protocol, states = self.protocol, trajectory.observations
        shown = [state.text or state.caption for state in states] if texts is None else texts
        if texts is not None:
            frames = [Frame((i,), text=text) for i, text in enumerate(texts) if text]
        else:
            frames = [Frame((i,), image=s.screenshot) for i, s in enumerate(states) if s.screenshot]
        recorded = (
            {i for frame in frames for i in frame.states}
            if protocol.shows_pictures
            else {i for i, text in enumerate(shown) if text}
        )
        if endings(trajectory).isdisjoint(recorded):
            what = "screenshot" if protocol.shows_pictures and texts is None else "text"
            hint = "; a captioner (given, text) would show text instead" * (what == "screenshot")
            raise NoEvidenceError(
                f"the last state has no {what}, so the outcome is not visible{hint}"
            )
        return Scene(protocol, trajectory, frames, shown)

    def _program(self, scene: Scene) -> _Program:
        """Yields the calls of each stage and takes their results; the last has the verdict."""
        for stage in self.protocol.stages:
            if stage.when == "rivals" and len(conditional_criteria(scene.results)) < 2:
                continue
            if stage.per == "last" and scene.frames[-1].image is None:
                scene.results[stage.name] = scene.frames[-1].text  # a captioner described it
                continue
            calls = self._stage_calls(stage, scene)
            if not calls:
                scene.results[stage.name] = []
                continue
            results = yield calls
            if stage.per in ("goal", "run", "last"):
                scene.results[stage.name] = complete_scores(results[0], scene.results)
            else:
                scene.results[stage.name] = results
        return None

    def _stage_calls(self, stage: Stage, scene: Scene) -> list[_Call]:
        def call(frames: Sequence[Frame], **subject: Any) -> _Call:
            images = tuple(frame.image for frame in frames if frame.image is not None)
            return _Call(
                stage, lambda room: self._messages(stage, scene, frames, room, subject), images
            )

        if stage.per == "frame":
            return [call([frame]) for frame in scene.frames]
        if stage.per == "last":
            return [call(scene.frames[-1:])]
        if stage.per == "relevant":
            selected = select_relevant(scene.results["relevance"], scene.results["rubric"])
            scene.results["selected"] = selected
            return [
                call([scene.frames[i]], numbers=numbers) for i, numbers in sorted(selected.items())
            ]
        if stage.per == "transition":
            numbered = [i for i, text in enumerate(scene.texts) if text]
            return [call([], before=i, after=j) for i, j in pairwise(numbered)]
        return [call(self._shown(stage, scene))]

    def _shown(self, stage: Stage, scene: Scene) -> list[Frame]:
        """Returns the frames that a call about the whole run shows."""
        choice = stage.frames
        if choice is None:
            return []
        if choice.which == "last":
            return scene.frames[-choice.most :]
        grades: Sequence[Grade] = scene.results["grades"]
        frames = [
            frame
            for frame, grade in zip(scene.frames, grades, strict=True)
            if grade.score >= choice.least
        ]
        return frames[: choice.most]

    def _messages(
        self,
        stage: Stage,
        scene: Scene,
        frames: Sequence[Frame],
        room: Room,
        subject: Mapping[str, Any],
    ) -> tuple[Message, ...]:
        most = room.images if frames and frames[0].image is not None else None
        shown = fewer(frames, most)
        scene.remark = not_all(len(shown), len(frames)) if stage.per == "run" else scene.remark
        prompt = self.prompts[stage.prompt]
        quotes = self.prompts["quotes"].fill({"code": NONCE})["user"]
        values = {"quotes": quotes, "images": _IMAGES}
        filling = Filling(scene, shown, room.chars, subject)
        for slot in prompt.slots - values.keys():
            values[slot] = SLOTS[slot](filling)
        turns = prompt.fill({slot: values[slot] for slot in prompt.slots})
        images = [Image(frame.image, stage.detail) for frame in shown if frame.image is not None]
        before, marker, after = turns["user"].partition(_IMAGES)
        pieces = (before.strip(), *(images if marker else ()), after.strip())
        user = Message("user", tuple(piece for piece in pieces if piece))
        return (Message("system", (turns["system"],)), user)

    # The fingerprint

    def _names(self) -> tuple[str, ...]:
        return self.protocol.prompt_names

    def _version(self) -> str:
        return self.protocol.version

    def _form_texts(self) -> list[str]:
        forms = [READERS[stage.reads].form for stage in self.protocol.stages]
        texts = [form.instructions(as_json=as_json) for form in forms for as_json in (True, False)]
        return [*texts, self.protocol.settings]


def _typical(stage: Stage) -> Any:
    reader = READERS[stage.reads]
    return reader.typical if isinstance(reader, StageReader) else None


def _key(call: _Call, room: int) -> str:
    """Returns the identity of a call: its messages, with images by content, and its limit."""
    parts = [
        file_hash(part.path) if isinstance(part, Image) else part
        for message in call.messages(Room(room))
        for part in message.parts
    ]
    return content_hash(
        *parts, str(call.stage.max_tokens), msgspec.json.encode(call.stage.reads).decode()
    )
