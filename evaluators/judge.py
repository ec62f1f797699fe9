"""The interpreter of judge pages: the only judge that calls a model.

A page (`prill.evaluators.page`) says which calls are made, what each shows, how its reply is read,
and what follows. `page_maker` makes a judge of it, whose options are the keys that the page lets a
user set.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.registry import Option, OptionError, nearest, read_value
from prill.errors import InputError, NoEvidenceError, TruncatedError, UnparsableError, UsageError
from prill.evaluators.criteria import Rubric, compute_hash, read_rubrics, rubric_for
from prill.evaluators.evidence import (
    Frame,
    are_withheld,
    best_frames,
    endings,
    fewer,
    not_all,
    select_frames,
)
from prill.evaluators.judgement import Judgement, make_verdict
from prill.evaluators.page import (
    Page,
    ShownFrames,
    Stage,
    check_placeholders,
    find_line,
    list_pages,
    page_file,
    parse_page,
)
from prill.evaluators.questions import YES_NO, Question, read_questions
from prill.evaluators.readers import (
    READERS,
    Grade,
    LastReader,
    conditional_criteria,
    select_relevant,
)
from prill.evaluators.reading import (
    Reading,
    all_texts,
    distinct_frames,
    finished,
    images_read,
    key_frames,
    last_texts,
    other_endings,
)
from prill.evaluators.references import ReferencesOption, hash_references, read_references
from prill.evaluators.slots import RESULTS, SLOTS, SUBJECTS, Filling, Scene
from prill.models.calls import ROOM, PerGoal, Room, ask, gather_calls, planned
from prill.models.options import MaxTokensOption
from prill.models.prompts import NONCE, Prompt, code_of_run, content_hash, prompt_set
from prill.protocols import Bounded, Captioner, Form, Image, LanguageModel, Message, Reply
from prill.types import EvaluatorInfo, Findings, Trajectory, UnscoredReason, Usage, Verdict

# The place of the images in a user turn.
_IMAGES = "\ue001"
# No call was made, or none that the authors' code would have made.
_WITHOUT_CALL: frozenset[UnscoredReason] = frozenset({"budget", "no_evidence", "input"})
_LABELS = {"failure": False, "none": None}

# A path for the judge's main prompt, or a table of prompt names and paths.
PromptFiles = str | dict[str, str] | None
PromptOption = Annotated[
    PromptFiles,
    Meta(description="File with a prompt of your own, or a table from prompt names to files."),
]


def _key(type_: Any, usual: Any, description: str, **bounds: Any) -> tuple[Any, Any]:
    """Returns the type of a key, with its bounds and description, and its usual value."""
    return Annotated[(type_, Meta(description=description, **bounds))], usual


_COUNT = Annotated[int, Meta(ge=1)]
_FORMS = Literal["thoughts", "verdict", "word"]
# The keys of a judge: type and usual value. A page names those that a user may set.
OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "frames": _key(
        _COUNT | None,
        None,
        "Number of last states shown, each picture once (vlm by default: the first, the last two, "
        "and the one before a form was submitted).",
    ),
    "answer": _key(bool | None, None, "Show the agent's answer to the judge, as a claim."),
    "show_answer": _key(bool, True, "Show the agent's answer to the judge, as a claim."),
    "thoughts": _key(bool, False, "Show the agent's thoughts to the judge, as claims."),
    "probability": _key(
        Literal["token", "stated"],
        "token",
        "How the score is computed: from the probability of the verdict's token, or from a number "
        "that the model states.",
    ),
    "form": _key(
        _FORMS,
        "thoughts",
        "Form of the reply: thoughts followed by the verdict; only the verdict, as an object where "
        "the endpoint supports structured output; or the bare word, for trained judges.",
    ),
    "max_tokens": (MaxTokensOption, 1024),
    "max_chars": _key(
        int, ROOM, "Maximum number of characters for states, and the same for actions.", ge=1
    ),
    "references": (ReferencesOption, None),
    "towards": _key(float, 0.5, "Reward of a step towards the goal.", ge=0, lt=1),
    "away": _key(float, -0.5, "Reward of a step without progress.", lt=0),
    "top_k": _key(
        int,
        3,
        "Maximum number of frames shown, of those rated well; of each criterion, if there are "
        "several.",
        ge=1,
    ),
    "least_score": _key(
        int, 2, "Minimum rating of a frame, from 1 to 5. Lower ones are left out.", ge=1, le=5
    ),
    "threshold": _key(
        float,
        1.0,
        "Minimum of a success: the share of the weight that is met (rubric), or the score.",
        gt=0,
        le=1,
    ),
    "rubrics": _key(
        str | dict[str, Rubric] | None,
        None,
        "Criteria of your own, by task id or goal (JSON Lines or TOML).",
    ),
    "make_missing": _key(
        bool, False, "Let the model write criteria for goals that `rubrics` does not contain."
    ),
    "question": _key(str | None, None, "Question to ask about every trajectory."),
    "questions": _key(
        Sequence[Mapping[str, Any]],
        (),
        "Several questions at once: tables with `question` and `answer`.",
    ),
}
_ANSWER_TYPE, _ = _key(
    Any,
    YES_NO,
    "Type of the answer: yes/no, number, labels (a list, or a|b|c), a dataclass or "
    "module:Dataclass.",
)


def list_keys(page: Page) -> dict[str, Option]:
    """Returns the keys of a judge that a user may set, with their usual values."""
    usual = _usual(page)
    keys = {}
    for name in page.options:
        hint = _ANSWER_TYPE if name == "answer" and "question" in page.options else OPTIONS[name][0]
        description = next(note.description for note in hint.__metadata__ if note.description)
        keys[name] = Option(name, hint, usual[name], required=False, description=description)
    return keys


def _usual(page: Page) -> dict[str, Any]:
    """Returns the values of all keys, as the page sets them."""
    usual = {name: value for name, (_, value) in OPTIONS.items()}
    if "question" in page.options or "question" in page.settings or "questions" in page.settings:
        usual["answer"] = YES_NO
    return {**usual, **page.settings}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a stage, about one subject."""

    stage: Stage
    subject: Mapping[str, Any]
    messages: Callable[[Room], tuple[Message, ...]]


@dataclass(slots=True)
class _Official:
    """The label by the authors' rule, as soon as the reply with the verdict is there."""

    label: bool | None = None
    known: bool = False


_Program = Generator[list[_Call], list[Any], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class PageJudge:
    """A judge that a page describes.

    Verdicts of published pages have the label by the authors' own rule in
    `findings.official_label`, also unscored ones. It is absent if no call was made.

    Args:
        model: The model that judges.
        page: The page.
        captioner: Describes states as text. None: the judge sees screenshots, or nothing.
        prompt: The user's own prompts.
        options: The keys that the user sets.
    """

    model: LanguageModel
    page: Page
    captioner: Captioner | None = None
    prompt: PromptFiles = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Report what cannot be read now, not at the first trajectory.
        self.prompts  # noqa: B018
        self._references  # noqa: B018
        self._rubrics  # noqa: B018
        self._check()

    @cached_property
    def how(self) -> dict[str, Any]:
        """The values of all keys: the user's, else the page's, else the usual ones."""
        page, how = self.page, {**_usual(self.page), **self.options}
        if page.stages[-1].reads == "answers":
            how["asked"] = read_questions(how["question"], how["answer"], how["questions"])
            how["answer"] = how["show_answer"]
        return how

    def _check(self) -> None:
        how = self.how
        if how["form"] != "thoughts" and how["probability"] == "stated":
            raise UsageError(
                "a reply of one word contains no number; set probability to token, or form "
                "to thoughts"
            )
        if how["form"] == "verdict" and self.page.stages[-1].reads == "label":
            raise UsageError("form: labels of steps are given with thoughts, or as a bare word")

    @cached_property
    def _last(self) -> LastReader:
        reader = READERS[self.page.stages[-1].reads]
        assert isinstance(reader, LastReader)
        return reader

    @cached_property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts in use, by name."""
        shipped = {name: self.page.load(name) for name in self.page.prompt_names}
        if any("quotes" in prompt.slots for prompt in shipped.values()):
            shipped["quotes"] = self.page.load("quotes")
        return prompt_set(shipped, self.page.main_prompts, self.prompt)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The judge's identity, which changes whenever its verdicts could."""
        texts = [prompt.text for prompt in self.prompts.values()]
        for reads in dict.fromkeys(stage.reads for stage in self.page.stages):
            texts += READERS[reads].texts(self.how)
        if self.page.folder:
            texts.append(self.page.hash)
        name, version = self.page.name, self.page.version
        return EvaluatorInfo(name, version, self.model.name, content_hash(*texts), self._params())

    def _params(self) -> dict[str, Any]:
        page, how = self.page, self.how
        params: dict[str, Any] = {}
        if page.captioner != "no":
            params["captioner"] = None if self.captioner is None else self.captioner.name
        params |= page.params | {name: how[name] for name in page.options}
        # Options are omitted at their usual value, so that verdicts written before they existed
        # keep their keys.
        for name in ("references", *page.later):
            if params.get(name) == _usual(page).get(name):
                params.pop(name, None)
        if self._references is not None:
            params["references"] = hash_references(self._references)
        if "rubrics" in params and self._rubrics is not None:
            params["rubrics"] = compute_hash(self._rubrics)
        if "question" in params:
            del params["question"], params["answer"]
            params["questions"] = [question.params() for question in how["asked"]]
        return params

    @property
    def reads_probabilities(self) -> bool:
        """Whether scores come from log-probabilities, if the model returns them."""
        return self._last.reads_probabilities and self.how["probability"] == "token"

    @property
    def concurrency(self) -> int:
        """The model's maximum number of concurrent requests, or 16 if it has none."""
        return self.model.concurrency if isinstance(self.model, Bounded) else 16

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions that it asks; empty for most judges."""
        return tuple(self.how.get("asked", ()))

    @cached_property
    def _references(self) -> Mapping[str, str] | None:
        references: str | Mapping[str, str] | None = self.how["references"]
        return read_references(references) if isinstance(references, str) else references

    @cached_property
    def _rubrics(self) -> Mapping[str, Rubric] | None:
        rubrics: str | Mapping[str, Rubric] | None = self.how["rubrics"]
        return read_rubrics(rubrics) if isinstance(rubrics, str) else rubrics

    @cached_property
    def _of_goals(self) -> PerGoal[Any]:
        return PerGoal()

    def _set(self, key: str, usual: int) -> int:
        """Returns the value of a key that the page, or a user of it, sets, else the usual one."""
        page = self.page
        return int(self.how[key]) if key in page.options or key in page.settings else usual

    @cached_property
    def _chars(self) -> int:
        return self._set("max_chars", self.page.chars)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the image files that the verdict depends on."""
        page, seen = self.page, trajectory.observations
        if page.evidence == "key" or (page.evidence == "last" and self.captioner is None):
            frames = select_frames(trajectory, self.how["frames"])
            return [frame.screenshot for _, frame in frames if frame.screenshot]
        if page.evidence == "last":
            count = self.how["frames"] or 1
            return images_read(seen[-count:], self.captioner) or images_read(
                (seen[i] for i in other_endings(trajectory, count)), self.captioner
            )
        if page.evidence == "texts" and not page.ending:
            seen = seen[: len(trajectory.steps)]
        if self.captioner is None and not page.shows_pictures:
            return ()
        return images_read(seen, self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict; unscored (`no_evidence`) if the judge's input is missing."""
        official = _Official()
        with code_of_run():
            verdict = await make_verdict(self, trajectory, lambda: self._run(trajectory, official))
        if self.page.error is None:
            return verdict
        if not official.known:
            if verdict.unscored in _WITHOUT_CALL:
                return verdict
            official.label = _LABELS[self.page.error]
        findings = replace(verdict.findings or Findings(), official_label=official.label)
        return replace(verdict, findings=findings)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of all calls, an upper bound; none is made, and none planned without
        evidence.
        """
        usage = Usage()
        if self._needs_answer(trajectory):
            return usage
        try:
            self._requires_steps(trajectory)
            scene = finished(self._scene(trajectory, Reading(self.captioner, planned=True)))
            program = self._program(scene, planned=True)
            batch = next(program)
            while True:
                for call in batch:
                    messages = call.messages(Room(self._chars))
                    usage += planned(messages, self._tokens(call.stage, scene))
                batch = program.send([READERS[call.stage.reads].typical for call in batch])
        except (StopIteration, NoEvidenceError):
            return usage

    async def _run(self, trajectory: Trajectory, official: _Official) -> Judgement:
        if self._needs_answer(trajectory):
            if self.page.no_answer == "none":
                raise NoEvidenceError(
                    "the agent gave no answer, which this protocol does not judge"
                )
            official.label, official.known = False, True
            return Judgement(
                False, 0.0, "the agent gave no answer, which is a failure in this protocol"
            )
        self._requires_steps(trajectory)
        scene = await self._scene(trajectory, Reading(self.captioner))
        program = self._program(scene)
        try:
            batch = next(program)
            while True:
                answers = [self._answer(call, scene, official) for call in batch]
                batch = program.send(await gather_calls(answers))
        except StopIteration as end:
            return self._last.conclude(scene, end.value)

    def _needs_answer(self, trajectory: Trajectory) -> bool:
        """Returns whether the agent did not answer, and the judge makes no call then."""
        answered = trajectory.answer or are_withheld(trajectory)
        return not answered and self.page.no_answer != "ask"

    def _requires_steps(self, trajectory: Trajectory) -> None:
        if self.page.stages[-1].per in ("step", "criterion") and not trajectory.steps:
            raise NoEvidenceError("the trajectory has no actions")

    async def _answer(self, call: _Call, scene: Scene, official: _Official) -> Any:
        """Returns the result of a call, and notes the authors' label for the verdict."""
        stage, reader = call.stage, READERS[call.stage.reads]
        if stage.per == "goal":
            return await self._once(call, scene)
        published = self.page.error is not None and stage is self.page.stages[-1]
        try:
            reply = await self._ask(call, scene)
        except (UnparsableError, TruncatedError) as error:
            if published:
                official.label = reader.official(getattr(error, "text", ""))
                official.known = True
            if isinstance(error, UnparsableError) and stage.optional:
                return reader.missing(error, scene, call.subject)
            raise
        if published:
            official.label, official.known = reader.official(reply.text), True
        try:
            return reader.read(reply, scene, call.subject)
        except UnparsableError as error:
            if not stage.optional:
                raise
            return reader.missing(error, scene, call.subject)

    async def _once(self, call: _Call, scene: Scene) -> Any:
        """Returns the result of a call about a goal: asked once, and shared by its attempts."""
        stage, reader = call.stage, READERS[call.stage.reads]
        messages = call.messages(Room(self._chars))
        texts = [part for message in messages for part in message.parts if isinstance(part, str)]
        prompt = self.prompts[stage.prompt_for(scene.run.task.platform)]
        form, tokens = reader.make_form(scene), self._tokens(stage, scene)
        shape = form.instructions(as_json=True)
        key = content_hash(self.model.name, prompt.text, shape, str(tokens), *texts)

        async def make() -> Any:
            return reader.read(await self._ask(call, scene), scene, call.subject)

        return await self._of_goals.get(key, make)

    async def _ask(self, call: _Call, scene: Scene) -> Reply:
        stage = call.stage
        form: Form = READERS[stage.reads].make_form(scene)
        return await ask(
            self.model,
            call.messages,
            form,
            self.prompts[stage.prompt_for(scene.run.task.platform)],
            self._tokens(stage, scene),
            self._chars,
        )

    def _tokens(self, stage: Stage, scene: Scene) -> int:
        return READERS[stage.reads].tokens(scene, self._set("max_tokens", stage.max_tokens))

    # The evidence

    async def _scene(self, run: Trajectory, reading: Reading) -> Scene:
        """Returns the evidence. Raises NoEvidenceError if no state that can show the outcome is
        recorded in the form that the page shows.
        """
        page, states = self.page, run.observations
        texts: list[str | None] = [None] * len(states)
        count = self.how["frames"]
        if page.evidence == "key" or (page.evidence == "last" and self.captioner is None):
            frames = await key_frames(run, count, reading)
        elif page.evidence == "last":
            frames = await last_texts(run, count or 1, reading)
        elif page.evidence == "distinct":
            frames = await distinct_frames(run, reading)
        elif self.captioner is not None:
            texts = await all_texts(run, reading, ending=page.ending)
            frames = [Frame((i,), text=text, address="") for i, text in enumerate(texts) if text]
        else:
            texts = [state.text or state.caption for state in states]
            frames = [
                Frame((i,), image=state.screenshot)
                for i, state in enumerate(states)
                if state.screenshot
            ]
        if page.evidence == "screens":
            self._require_ending(run, frames, texts)
        scene = Scene(page, self.how, run, frames, texts, self.questions, self._references)
        self._last.requires(scene)
        return scene

    def _require_ending(
        self, run: Trajectory, frames: Sequence[Frame], texts: Sequence[str | None]
    ) -> None:
        pictures = self.page.shows_pictures
        recorded = (
            {i for frame in frames for i in frame.states}
            if pictures
            else {i for i, text in enumerate(texts) if text}
        )
        if endings(run).isdisjoint(recorded):
            what = "screenshot" if pictures and self.captioner is None else "text"
            hint = "; a captioner (given, text) would show text instead" * (what == "screenshot")
            raise NoEvidenceError(
                f"the last state has no {what}, so the outcome is not visible{hint}"
            )

    # The calls

    def _program(self, scene: Scene, *, planned: bool = False) -> _Program:
        """Yields the calls of each stage and takes their results; returns those of the last."""
        results: Sequence[Any] = []
        for stage in self.page.stages:
            reader = READERS[stage.reads]
            if stage.when == "rivals" and len(conditional_criteria(scene.results)) < 2:
                continue
            if stage.when == "pictures" and self.captioner is not None:
                continue
            if reader.reads_criteria and (found := self._supplied(scene.run)):
                scene.results[stage.name] = found
                continue
            calls = self._calls(stage, scene, planned=planned)
            results = reader.settle((yield calls), scene) if calls else []
            one = stage.per in ("goal", "run", "last")
            scene.results[stage.name] = results[0] if one and results else results
        return results

    def _supplied(self, run: Trajectory) -> Rubric | None:
        """Returns the rubric from `rubrics`, or None if the model has to write it."""
        rubric = rubric_for(run.task, self._rubrics or {})
        if rubric is None and self._rubrics is not None and not self.how["make_missing"]:
            raise InputError(f"no rubric was given for task {run.task.id!r}, nor for its goal")
        return rubric

    def _calls(self, stage: Stage, scene: Scene, *, planned: bool) -> list[_Call]:
        def call(choose: Callable[[Room], tuple[list[Frame], str]], **subject: Any) -> _Call:
            def messages(room: Room) -> tuple[Message, ...]:
                shown, remark = choose(room)
                if stage.per == "run":
                    scene.shown, scene.remark = shown, remark
                return self._messages(stage, scene, shown, room, subject)

            return _Call(stage, subject, messages)

        def about(frame: Frame | None = None, **subject: Any) -> _Call:
            return call(lambda _: ([] if frame is None else [frame], ""), **subject)

        frames = scene.frames
        if stage.per == "frame":
            return [about(frame) for frame in frames]
        if stage.per == "last":
            return [about(frames[-1])]
        if stage.per == "goal":
            return [about()]
        if stage.per == "relevant":
            selected = select_relevant(scene.results["relevance"], scene.results["rubric"])
            scene.results["selected"] = selected
            return [about(frames[i], numbers=numbers) for i, numbers in sorted(selected.items())]
        if stage.per == "step":
            return [about(before=i, after=i + 1) for i in range(len(scene.run.steps))]
        known = [i for i, text in enumerate(scene.texts) if text]
        if stage.per == "transition":
            return [about(before=i, after=j) for i, j in pairwise(known)]
        if stage.per == "criterion":
            count = len(scene.rubric.criteria)
            return [about(state=i, criterion=j) for i in known for j in range(count)]
        return [call(lambda room: self._shown(stage, scene, room, planned=planned))]

    def _shown(
        self, stage: Stage, scene: Scene, room: Room, *, planned: bool
    ) -> tuple[list[Frame], str]:
        """Returns the frames that a call about the whole run shows, and a note if there is no room
        for some.
        """
        choice, frames = stage.frames, scene.frames
        grades: Sequence[Grade] = scene.results.get("grades", ())
        if choice is None:
            every = self.page.evidence == "key"
            frames = [frame for frame in frames if every or frame.image is None]
        elif choice.which == "last":
            frames = frames[-choice.most :]
        elif choice.which == "graded":
            least = self._set("least_score", choice.least)
            graded = zip(frames, grades, strict=True)
            frames = [frame for frame, grade in graded if grade.score >= least]
            frames = frames[: self._set("top_k", choice.most)]
        elif planned:
            columns = max(len(grade.scores) for grade in grades)
            return frames[-1 - self._set("top_k", choice.most) * columns :], ""
        else:
            return self._best(choice, scene, room)
        pictures = bool(frames) and frames[0].image is not None
        shown = fewer(frames, room.images if pictures else None)
        return shown, not_all(len(shown), len(frames))

    def _best(self, choice: ShownFrames, scene: Scene, room: Room) -> tuple[list[Frame], str]:
        """Returns the best frames for each column of grades, and the last: fewer if there is less
        room.
        """
        places = self._places(choice, scene, room)
        left_out = len(self._places(choice, scene, Room())) - len(places)
        remark = (
            f"the request had no room for {left_out} of the frames chosen; a smaller top k may fit"
            if left_out
            else ""
        )
        return [scene.frames[i] for i in places], remark

    def _places(self, choice: ShownFrames, scene: Scene, room: Room) -> list[int]:
        grades: Sequence[Grade] = scene.results["grades"]
        columns = max((len(grade.scores) for grade in grades), default=0) or 1
        places: set[int] = set()
        pictures: list[int] = []
        most, least = self._set("top_k", choice.most), self._set("least_score", choice.least)
        for count in range(max(1, most * room.chars // ROOM), 0, -1):
            places = set()
            for i in range(columns):
                scores = [grade.scores[i] if grade.scores else None for grade in grades]
                places.update(best_frames(scores, count, least))
            pictures = sorted(i for i in places if scene.frames[i].image is not None)
            if room.images is None or len(pictures) <= room.images:
                break
        return sorted(places - {*pictures} | {*fewer(pictures, room.images)})

    def _messages(
        self,
        stage: Stage,
        scene: Scene,
        frames: Sequence[Frame],
        room: Room,
        subject: Mapping[str, Any],
    ) -> tuple[Message, ...]:
        prompt = self.prompts[stage.prompt_for(scene.run.task.platform)]
        filling = Filling(scene, stage, frames, room.chars, subject)
        turns = prompt.fill({slot: self._value(slot, filling) for slot in prompt.slots})
        images = [Image(frame.image, stage.detail) for frame in frames if frame.image is not None]
        before, _, after = turns["user"].partition(_IMAGES)
        pieces: list[str | Image] = [before.strip(), *images, after.strip()]
        user = Message("user", tuple(piece for piece in pieces if piece))
        return (Message("system", (turns["system"],)), user) if "system" in turns else (user,)

    def _value(self, slot: str, filling: Filling) -> str:
        if slot in SLOTS:
            return SLOTS[slot](filling)
        if slot == "quotes":
            return self.prompts["quotes"].fill({"code": NONCE})["user"]
        if slot == "images":
            return _IMAGES
        result = filling.scene.results.get(slot)
        return (
            filling.quoted(slot, result) if isinstance(result, str) else filling.result(slot, slot)
        )


# Pages by name


def load_page(name: str) -> Page:
    """Loads a page: one of prill's by its name, or a file.

    Raises UsageError for an unknown name, or a file that is no page; the message names the line.
    """
    if name.endswith(".toml"):
        return _checked(Path(name))
    if name not in list_pages():
        raise UsageError(
            f"unknown judge {name!r}{nearest(name, list_pages())}; expected one of "
            f"{', '.join(list_pages())}",
            parameters=("judge",),
        )
    return _shipped(name)


@cache
def _shipped(name: str) -> Page:
    return parse_page(page_file(name))


def _checked(path: Path) -> Page:
    """Returns the page of a file. Raises UsageError for what does not fit together."""
    page = parse_page(path)

    def refuse(key: str, words: str, stage: int | None = None) -> UsageError:
        return UsageError(f"{path}:{find_line(page.text, key, stage)}: {key}: {words}")

    for name in (*page.options, *page.later):
        if name not in OPTIONS:
            raise refuse("options", f"unknown option {name!r}{_one_of(name, OPTIONS)}")
    for name, value in page.settings.items():
        if name not in OPTIONS:
            raise refuse(name, f"unknown setting{_one_of(name, OPTIONS)}")
        _check_setting(page, name, value, refuse)
    results: list[str] = []
    for number, stage in enumerate(page.stages):
        last = number == len(page.stages) - 1
        fitting = [
            name for name, reader in READERS.items() if isinstance(reader, LastReader) == last
        ]
        if stage.reads not in fitting:
            what = "the last stage" if last else "a stage before the last"
            words = f"{stage.reads!r} reads no replies of {what}{_one_of(stage.reads, fitting)}"
            raise refuse("reads", words, number)
        per = _SUBJECT.get(stage.reads, ("run",) if last else ())
        if per and stage.per not in per:
            raise refuse("reads", f"{stage.reads!r} needs per = {per[0]!r}", number)
        for needed in _NEEDED.get(stage.reads, ()) + _shown_results(stage):
            if needed not in results:
                raise refuse("reads", f"it needs an earlier stage named {needed!r}", number)
        for name in stage.prompts:
            try:
                prompt = page.load(name)
            except UsageError as error:
                raise refuse("prompt", str(error), number) from None
            known = [
                slot
                for slot in SLOTS
                if (slot not in SUBJECTS or stage.per in SUBJECTS[slot])
                and (slot not in RESULTS or RESULTS[slot] in results)
            ]
            line = find_line(page.text, "prompt", number)
            check_placeholders(prompt, [*known, *results, "quotes", "images"], f"{path}:{line}")
        results.append(stage.name)
    if page.stages[-1].reads == "answers" and not {"question", "questions"} & {
        *page.options,
        *page.settings,
    }:
        raise refuse("reads", "a page that asks needs a question in its settings", len(results) - 1)
    if page.evidence == "texts" and page.captioner == "no":
        raise refuse("captioner", "texts of states come from a captioner")
    return page


# The kinds of stages whose replies a reader reads, and the stages that it needs before it.
_SUBJECT = {"label": ("step",), "progress": ("criterion",), "ratings": ("frame",)}
_SUBJECT |= {"grade": ("frame",), "criteria": ("goal",), "relevance": ("frame",)}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "ratings": ("criteria",),
    "assessment": ("criteria",),
    "progress": ("criteria",),
    "scores": ("rubric",),
}


def _shown_results(stage: Stage) -> tuple[str, ...]:
    if stage.per == "relevant":
        return ("relevance", "rubric")
    if stage.when == "rivals":
        return ("rubric",)
    graded = stage.frames is not None and stage.frames.which in ("graded", "best")
    return ("grades",) if graded else ()


def _one_of(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    return f"{nearest(name, names)}; expected one of {', '.join(names)}"


def _check_setting(page: Page, name: str, value: Any, refuse: Callable[..., UsageError]) -> None:
    asked = name == "answer" and not isinstance(value, bool)
    kinds = [value] if asked else []
    if name == "questions" and isinstance(value, list):
        kinds = [one.get("answer") for one in value if isinstance(one, Mapping)]
    for kind in kinds:  # no code runs from a page
        if isinstance(kind, str) and ":" in kind:
            raise refuse(name, f"{kind!r} is an object; a page names yes/no, number or labels")
    if asked:
        return
    hint = OPTIONS[name][0]
    try:
        read_value(value, Option(name, hint, None, required=False, description=""))
    except OptionError as error:
        raise refuse(name, str(error).removeprefix(f"{name}: ")) from None


def write_page(page: Page, target: str) -> list[str]:
    """Copies a page with its prompts, to begin a judge of one's own; returns the files.

    Raises UsageError if a file is there already.
    """
    path = Path(target)
    if path.suffix != ".toml":
        raise UsageError(f"{target}: a page is a .toml file", parameters=("write",))
    names = [*page.prompt_names]
    texts = {name: page.load(name).text for name in names}
    if any("{{ quotes }}" in text for text in texts.values()):
        texts["quotes"] = page.load("quotes").text
    files = {path: page.text}
    files |= {path.parent / "prompts" / f"{name}.md": text for name, text in texts.items()}
    if there := next((file for file in files if file.exists()), None):
        raise UsageError(f"{there}: the file is there already", parameters=("write",))
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return [str(file) for file in files]


@cache
def maker_named(name: str) -> Callable[..., PageJudge]:
    """Returns the maker of one of prill's pages."""
    return page_maker(load_page(name))


def page_maker(page: Page) -> Callable[..., PageJudge]:
    """Returns a function that makes the judge of a page; its parameters are the judge's options."""
    keys = list_keys(page)

    def make(
        model: LanguageModel,
        captioner: Captioner | None = None,
        prompt: PromptFiles = None,
        **options: Any,
    ) -> PageJudge:
        return PageJudge(model, page, captioner, prompt, options)

    kind = inspect.Parameter.KEYWORD_ONLY
    none = inspect.Parameter.empty
    hints: dict[str, tuple[Any, Any]] = {"model": (LanguageModel, none)}
    if page.captioner == "required":
        hints["captioner"] = _key(Captioner, none, "Captioner that describes states.")
    elif page.captioner == "optional":
        what = "Captioner that describes states. None: the model sees screenshots."
        hints["captioner"] = _key(Captioner | None, None, what)
    hints["prompt"] = (PromptOption, None)
    hints |= {name: (key.type, key.default) for name, key in keys.items()}
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, default=default, annotation=hint)
            for name, (hint, default) in hints.items()
        ]
    )
    make.__annotations__ = {name: hint for name, (hint, _) in hints.items()}
    make.page = page  # type: ignore[attr-defined]
    return make
