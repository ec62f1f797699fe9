"""Frames of a run: merges equal ones and selects the most relevant, always including the last.

It also has the base class of judges that rate every frame before they judge.

State 0 is the initial state, and state i is the state after action i. Frames are cited by these
numbers.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from msgspec import Meta

from prill.config.values import Config
from prill.errors import NoEvidenceError, UnparsableError
from prill.evaluators.changes import same_screen
from prill.evaluators.citations import CitationsOption, label, with_citations
from prill.evaluators.evidence import (
    BYTES,
    DistinctOption,
    action_history,
    address,
    claims,
    endings,
    fewer,
    request,
    state_text,
    without_claims,
)
from prill.evaluators.judgement import MAX_TOKENS, Judgement, ModelJudge
from prill.evaluators.references import ReferencesOption, reference_block
from prill.io.cache import DiskCache
from prill.io.images import file_hash
from prill.models.calls import ROOM, Room, ask, filled, gather_calls, planned
from prill.models.options import MaxTokensOption
from prill.models.prompts import load_prompt, quoted, shorten
from prill.protocols import Captioner, Form, Image, Message, RecordedCaptioner, Reply
from prill.types import Findings, FrameGrade, Observation, Platform, Trajectory, Usage

C = TypeVar("C")
_CAPTION_CHARS = 4000  # estimated length in plans: OCR text of a dense 1280x720 page
LeastScoreOption = Annotated[
    int,
    Meta(
        ge=1,
        le=5,
        description="Minimum rating of a frame, from 1 to 5. Lower ones are left out.",
    ),
]
ShowAnswerOption = Annotated[
    bool, Meta(description="Show the agent's answer to the judge, as a claim.")
]


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture (by path) or a text of the screen, and the ascending numbers of the states that
    show it.

    Without picture and text, a description stands for it.
    """

    states: tuple[int, ...]
    image: str | None = None
    text: str = ""
    address: str = ""  # of the last of the states


async def distinct_frames(
    trajectory: Trajectory, captioner: Captioner | None, *, by_region: bool = False
) -> list[Frame]:
    """Returns the distinct screenshots, or captions of the states, in the order of their last
    occurrence.

    Pictures are equal if their bytes are. With `by_region`, consecutive pictures are also equal if
    only a caret, a clock or a spinner differs (`same_screen`), and the later one is kept. States
    without a screenshot (or without the captioner's input) have no frame. Raises NoEvidenceError if
    no state that can show the outcome has a frame, and InputError for an image that cannot be read.
    """
    if captioner is not None:
        frames = _text_frames(trajectory, await captions(trajectory.observations, captioner))
    else:
        frames = await asyncio.to_thread(_screen_frames, trajectory)
        if by_region:
            frames = await asyncio.to_thread(_merge_similar, frames, trajectory.task.platform)
    if not frames:
        raise NoEvidenceError(
            "no state of this trajectory has a screenshot; set a captioner (given, text) "
            "to judge by text"
        )
    if not _shows_the_end(frames, trajectory):
        raise NoEvidenceError(
            "the last state "
            f"{'has no screenshot' if captioner is None else 'cannot be read'}, so the "
            "outcome is not visible"
        )
    return frames


def planned_frames(trajectory: Trajectory, captioner: Captioner | None) -> list[Frame]:
    """Returns the expected frames of a plan, without making captions.

    If a caption is unknown, the state counts as a frame of typical length.

    The list is empty if there would be no evidence.
    """
    if captioner is None:
        frames = _screen_frames(trajectory)
    else:
        frames = _text_frames(trajectory, planned_captions(trajectory.observations, captioner))
    return frames if _shows_the_end(frames, trajectory) else []


def _shows_the_end(frames: Sequence[Frame], trajectory: Trajectory) -> bool:
    """Returns whether a frame shows a state that can show the outcome."""
    return any(not endings(trajectory).isdisjoint(frame.states) for frame in frames)


async def captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """Returns the captions of the states; None for a state without the captioner's input.

    Raises NoEvidenceError if no state has that input.
    """

    async def one(state: Observation) -> str | NoEvidenceError:
        try:
            return await captioner(state)
        except NoEvidenceError as error:
            return error

    results = await gather_calls([one(state) for state in states])
    texts = [text if isinstance(text, str) and text.strip() else None for text in results]
    if not any(texts):
        raise next(
            (error for error in results if isinstance(error, NoEvidenceError)),
            NoEvidenceError("there is no state to read"),
        )
    return texts


def planned_captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """Returns recorded captions for a plan, with a text of typical length for each missing one."""
    if isinstance(captioner, RecordedCaptioner):
        return [captioner.recorded(state) for state in states]
    return [f"{i} ".ljust(_CAPTION_CHARS, "x") for i, _ in enumerate(states)]


def images_read(states: Iterable[Observation], captioner: Captioner | None) -> list[str]:
    """Returns the distinct image files that the model or the captioner reads."""
    paths = list(dict.fromkeys(state.screenshot for state in states if state.screenshot))
    return [] if paths and isinstance(captioner, RecordedCaptioner) else paths


def best_frames(scores: Sequence[int | None], count: int, least: int = 1) -> list[int]:
    """Returns the ascending indices of the frames to show.

    They are the last frame, the best `count` others with a score of at least `least`, and the
    latest `count` without a score (None: the rating failed). Of equal scores, the later frame comes
    first.
    """
    last = len(scores) - 1
    ranking = sorted(
        ((s, i) for i, s in enumerate(scores[:-1]) if s is not None and s >= least), reverse=True
    )
    unrated = [i for i, s in enumerate(scores[:-1]) if s is None]
    return sorted(
        {
            *(i for _, i in ranking[:count]),
            *unrated[len(unrated) - min(count, len(unrated)) :],
            last,
        }
    )


def title(frame: Frame, trajectory: Trajectory, *, cited: bool = False) -> str:
    """Returns a description of the states that a frame shows, with labels if it may be cited."""
    *same, last = frame.states
    when = (
        "the start"
        if last == 0
        else "after the last action"
        if last == len(trajectory.steps)
        else f"after action {last}"
    )
    text = f"State {last} ({when})"
    if cited:
        text = f"{text} {''.join(map(label, frame.states))}"
    return f"{text}; it looked the same in state {', '.join(map(str, same))}" if same else text


def frame_block(
    frames: Sequence[Frame],
    descriptions: Sequence[str],
    trajectory: Trajectory,
    room: int,
    *,
    cited: bool = False,
) -> tuple[str, list[Image]]:
    """Returns a text of the frames in at most `room` characters, and their images in order."""
    share = room // max(1, len(frames))
    pieces, images = [], []
    for frame, description in zip(frames, descriptions, strict=True):
        heading = title(frame, trajectory, cited=cited)
        where = f"\n{quoted('address', frame.address)}" if frame.address else ""
        if frame.image is not None:
            images.append(Image(frame.image))
            pieces.append(f"Image {len(images)}: {heading}{where}")
        elif frame.text:
            pieces.append(f"{heading}\n{quoted('state', shorten(frame.text, share))}")
        else:
            pieces.append(f"{heading}{where}")
        if description:
            pieces.append(quoted("description", shorten(description, share)))
    return "\n\n".join(pieces), images


def _screen_frames(trajectory: Trajectory) -> list[Frame]:
    paths = {state.screenshot for state in trajectory.observations if state.screenshot}
    hashes = {path: file_hash(path) for path in sorted(paths)}
    screenshots = (
        (i, s.screenshot, address(s)) for i, s in enumerate(trajectory.observations) if s.screenshot
    )
    return _merge_equal(
        (i, hashes[path], Frame((), image=path, address=where)) for i, path, where in screenshots
    )


def _merge_similar(frames: Sequence[Frame], platform: Platform) -> list[Frame]:
    """Merges each frame into the next one if both show the same screen."""
    merged: list[Frame] = []
    for frame in frames:
        before = merged[-1] if merged else None
        alike = before and before.image and frame.image
        if before and alike and same_screen(before.image or "", frame.image or "", platform):
            merged[-1] = replace(frame, states=tuple(sorted((*before.states, *frame.states))))
        else:
            merged.append(frame)
    return merged


def _text_frames(trajectory: Trajectory, texts: Sequence[str | None]) -> list[Frame]:
    pairs = zip(trajectory.observations, texts, strict=True)
    return _merge_equal(
        (i, page, Frame((), text=page, address=address(state)))
        for i, (state, text) in enumerate(pairs)
        if text and (page := state_text(text, state))
    )


def _merge_equal(numbered: Iterable[tuple[int, str, Frame]]) -> list[Frame]:
    frames: dict[str, Frame] = {}
    for i, key, frame in numbered:
        # move it to the end: the last state is always the last frame
        before = frames.pop(key, frame)
        frames[key] = replace(frame, states=(*before.states, i))
    return list(frames.values())


def verdict_blocks(
    trajectory: Trajectory,
    frames: Sequence[Frame],
    descriptions: Sequence[str],
    room: int,
    *,
    answer: bool,
    cited: bool = False,
) -> tuple[dict[str, str], Sequence[Image]]:
    """Returns the quoted request, actions, claims and frames for a verdict's prompt, and the
    images.

    Without `answer`, the texts of the agent's messages are removed from the actions too.
    """
    block, images = frame_block(frames, descriptions, trajectory, room, cited=cited)
    history = trajectory if answer else without_claims(trajectory)
    values = {
        "goal": request(trajectory),
        "actions": quoted("actions", action_history(history, room, cited=cited)),
        "claims": claims(trajectory, room // 4, answer=answer, thoughts=False),
        "frames": block,
    }
    return values, images


def remarks(failures: int, frames: int, left_out: int) -> str:
    """Returns a note for the verdict's reason: the numbers of unrated frames and of frames without
    room in the request.
    """
    notes = [f"{failures} of {frames} frames could not be rated"] if failures else []
    if left_out:
        notes.append(
            f"the request had no room for {left_out} of the frames chosen; a smaller top k may fit"
        )
    return f" [{'; '.join(notes)}]" if notes else ""


@dataclass(frozen=True, slots=True)
class Rating:
    """A description of a frame, and its relevance (1 to 5) to each criterion, in order."""

    description: str
    scores: tuple[int, ...]

    def __str__(self) -> str:
        scores = ", ".join(map(str, self.scores))
        return f"Score{'s' if len(self.scores) > 1 else ''}: {scores}\n{self.description}"


# None: the frame was not rated.
MaybeRating = Rating | UnparsableError | None
# Frames and their descriptions; empty: there is none.
Described = Sequence[tuple[Frame, str]]


def _texts(judgement: Judgement) -> list[str]:
    """Returns what the model wrote: a rubric's reasons, without the texts of its criteria."""
    found = judgement.findings or Findings()
    return [
        *(criterion.reason for criterion in found.criteria),
        *found.side_effects,
        *([found.not_executable] if found.not_executable else []),
    ]


def _grade(frame: Frame, rating: Rating | UnparsableError) -> FrameGrade:
    if isinstance(rating, UnparsableError):
        return FrameGrade(frame.states)
    return FrameGrade(frame.states, rating.scores, rating.description)


@dataclass(frozen=True, kw_only=True)
class FrameSpec(Config):
    """Settings of judges that rate every frame; the defaults are those of `webjudge`.

    The original WebJudge shows frames rated 3 or more, and hides the answer, which led to wrong
    successes.
    """

    top_k: Annotated[
        int,
        Meta(ge=1, description="Number of frames shown in addition to the last: those rated best."),
    ] = 10
    least_score: LeastScoreOption = 3
    answer: ShowAnswerOption = False
    distinct: DistinctOption = BYTES
    max_tokens: MaxTokensOption = MAX_TOKENS
    references: ReferencesOption = None
    frames_per_call: Annotated[
        int,
        Meta(
            ge=1,
            description="Frames rated in one call. More frames mean fewer calls but less "
            "careful ratings.",
        ),
    ] = 1
    citations: CitationsOption = False
    repeat_frames: Annotated[
        bool,
        Meta(
            description="Show rated frames again in the call for the verdict, as published. "
            "Otherwise it gets their descriptions and scores, and of the frames only the last, "
            "which is then not rated."
        ),
    ] = True


@dataclass(frozen=True, eq=False)
class FrameJudge(ModelJudge, Generic[C]):
    """Base class of judges that derive criteria from the goal, rate every frame and judge by the
    best.

    `C` is the type of the criteria: key points, or a rubric. Without a captioner the model reads
    screenshots; with one it reads captions. A frame whose rating cannot be parsed is still shown,
    and the verdict's reason says so. If there are more such frames than `top_k`, the verdict is
    unscored, because some would not be shown. `goal_cache` keeps the criteria of goals across runs;
    one object requests the criteria of each goal only once in any case.

    Without `repeat_frames`, each frame is in one call. The last frame, which is always part of the
    call for the verdict, is not rated; of the others that call has the ratings. Only a frame whose
    rating cannot be parsed is shown again, because nothing else tells what is on it.

    The prompts and formats are, in this order, for the criteria, the rating and the verdict.
    `together_prompt` and `together_form` are for rating several frames in one call.
    """

    together_prompt: ClassVar[str]
    together_form: ClassVar[Form]

    captioner: Annotated[
        Captioner | None,
        Meta(description="Captioner that describes states. None: the model sees screenshots."),
    ] = None
    spec: FrameSpec = field(default=FrameSpec(), kw_only=True)
    goal_cache: DiskCache | None = field(default=None, kw_only=True)

    def _params(self) -> dict[str, Any]:
        return {"captioner": None, **super()._params()}

    def _names(self) -> tuple[str, ...]:
        first, rating, last = self.prompt_names
        return first, self.together_prompt if self.spec.frames_per_call > 1 else rating, last

    @property
    def _forms(self) -> tuple[Form, ...]:
        first, rating, last = self.forms
        return first, self.together_form if self.spec.frames_per_call > 1 else rating, last

    def _form_texts(self) -> list[str]:
        return [
            form.instructions(as_json=as_json) for form in self._forms for as_json in (True, False)
        ]

    def _additions(self) -> list[str]:
        if self.spec.repeat_frames:
            return super()._additions()
        prompt = load_prompt("prill.evaluators", "described_frames")
        return [*super()._additions(), prompt.text.strip()]

    def _rated(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Returns the frames to rate. The last one is shown with any rating."""
        return frames if self.spec.repeat_frames else frames[:-1]

    def _parts(self, frames: Sequence[Frame]) -> list[Sequence[Frame]]:
        """Returns the frames of each rating call."""
        size, rated = self.spec.frames_per_call, self._rated(frames)
        return [rated[i : i + size] for i in range(0, len(rated), size)]

    def _candidates(self, frames: Sequence[Frame], ratings: Sequence[MaybeRating]) -> Described:
        """Returns the frames as the call for the verdict gets them, with their descriptions."""

        def one(frame: Frame, rating: MaybeRating) -> tuple[Frame, str]:
            if not isinstance(rating, Rating):
                return frame, ""
            if self.spec.repeat_frames:
                return frame, rating.description
            return replace(frame, image=None, text=""), str(rating)

        return [one(*pair) for pair in zip(frames, ratings, strict=True)]

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns all screenshots, because each is rated or shown."""
        return images_read(trajectory.observations, self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of the criteria, the ratings and the verdict.

        The criteria count even if another trajectory will already have requested them.
        """
        frames = planned_frames(trajectory, self.captioner)
        if not frames:
            return Usage()
        criteria, calls = self._planned_criteria(trajectory)
        ratings = [
            (self._rating_messages(trajectory, criteria, part, ROOM), len(part))
            for part in self._parts(frames)
        ]
        columns = self._columns(criteria)
        typical = Rating("x" * 500, (5,) * columns)
        rated = [typical] * len(self._rated(frames))
        shortlist = self._candidates(frames, [*rated, None][: len(frames)])
        shortlist = shortlist[-1 - self.spec.top_k * columns :]
        calls.append(self._verdict_messages(trajectory, criteria, shortlist, ROOM))
        most = self.spec.max_tokens
        plans = [
            *(planned(messages, most) for messages in calls),
            *(planned(messages, most * count) for messages, count in ratings),
        ]
        return sum(plans, start=Usage())

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        frames = await distinct_frames(
            trajectory, self.captioner, by_region=self.spec.distinct == "region"
        )
        criteria = await self._criteria(trajectory)
        calls = [self._rate(trajectory, criteria, part) for part in self._parts(frames)]
        rated = [rating for part in await gather_calls(calls) for rating in part]
        failures = [rating for rating in rated if isinstance(rating, UnparsableError)]
        if len(failures) > self.spec.top_k:
            raise UnparsableError(
                f"the ratings of {len(failures)} of {len(rated)} frames cannot be read; the "
                f"last: {failures[-1]}"
            )
        ratings: list[MaybeRating] = [*rated, None][: len(frames)]
        candidates = self._candidates(frames, ratings)
        places: list[int] = []

        def messages(room: Room) -> tuple[Message, ...]:
            places[:] = self._places(candidates, ratings, criteria, room)
            return self._verdict_messages(
                trajectory, criteria, [candidates[i] for i in places], room.chars
            )

        def shown() -> set[int]:
            return {state for i in places for state in frames[i].states}

        judgement = await self._conclude(criteria, messages, shown)
        if self._cites:
            judgement = with_citations(judgement, trajectory, shown(), _texts(judgement))
        left_out = len(self._places(candidates, ratings, criteria, Room())) - len(places)
        pairs = zip(self._rated(frames), rated, strict=True)
        grades = tuple(_grade(frame, rating) for frame, rating in pairs)
        return replace(
            judgement,
            reason=judgement.reason + remarks(len(failures), len(rated), left_out),
            findings=replace(judgement.findings or Findings(), frames=grades),
        )

    async def _rate(
        self, trajectory: Trajectory, criteria: C, frames: Sequence[Frame]
    ) -> list[Rating | UnparsableError]:
        """Returns the ratings, or an error if a reply or its part about a frame cannot be parsed.

        Frames that do not fit into one request go into another.
        """
        shown = list(frames)

        def messages(room: Room) -> tuple[Message, ...]:
            most = room.images if frames[0].image is not None else None
            shown[:] = frames[: most or len(frames)]
            return self._rating_messages(trajectory, criteria, shown, room.chars)

        try:
            reply = await ask(
                self.model,
                messages,
                self._forms[1],
                self.prompts[self._names()[1]],
                self.spec.max_tokens * len(frames),
            )
            ratings = self._parse_ratings(criteria, reply, shown)
        except UnparsableError as error:
            ratings = [error] * len(shown)
        rest = frames[len(shown) :]
        return [*ratings, *(await self._rate(trajectory, criteria, rest) if rest else ())]

    def _parse_ratings(
        self, criteria: C, reply: Reply, frames: Sequence[Frame]
    ) -> list[Rating | UnparsableError]:
        """Returns the rating of each frame in a reply. Raises UnparsableError."""
        if self.spec.frames_per_call == 1:
            return [self._parse_rating(criteria, reply)]
        found = self._parse_several(criteria, reply)
        return [
            next(
                (found[state] for state in reversed(frame.states) if state in found),
                UnparsableError(f"the reply does not rate state {frame.states[-1]}"),
            )
            for frame in frames
        ]

    def _places(
        self, candidates: Described, ratings: Sequence[MaybeRating], criteria: C, room: Room
    ) -> list[int]:
        """Returns the frames to show: the best for each column of scores, and the last.

        There are up to `top_k` for each column, or fewer if there is less room.
        """
        places: set[int] = set()
        pictures: list[int] = []
        for count in range(max(1, self.spec.top_k * room.chars // ROOM), 0, -1):
            places = set()
            for i in range(self._columns(criteria)):
                scores = [
                    rating.scores[i] if isinstance(rating, Rating) else None for rating in ratings
                ]
                places.update(best_frames(scores, count, self.spec.least_score))
            pictures = sorted(i for i in places if candidates[i][0].image is not None)
            if room.images is None or len(pictures) <= room.images:
                break
        return sorted(places - {*pictures} | {*fewer(pictures, room.images)})

    def _rating_messages(
        self, trajectory: Trajectory, criteria: C, frames: Sequence[Frame], room: int
    ) -> tuple[Message, ...]:
        block, images = frame_block(frames, [""] * len(frames), trajectory, room)
        name = "frame" if self.spec.frames_per_call == 1 else "frames"
        values = {"goal": request(trajectory), name: block, **self._block(criteria, room)}
        return filled(self.prompts[self._names()[1]], images, **values)

    def _verdict_messages(
        self,
        trajectory: Trajectory,
        criteria: C,
        shown: Described,
        room: int,
    ) -> tuple[Message, ...]:
        frames, descriptions = zip(*shown, strict=True)
        values, images = verdict_blocks(
            trajectory, frames, descriptions, room, answer=self.spec.answer, cited=self._cites
        )
        values["goal"] += reference_block(trajectory, self._references)
        messages = filled(
            self.prompts[self.prompt_names[2]], images, **self._block(criteria, room), **values
        )
        return self._asking(messages)

    def _columns(self, criteria: C) -> int:
        """Returns the number of scores in a rating."""
        return 1

    @abstractmethod
    async def _criteria(self, trajectory: Trajectory) -> C:
        """Returns the criteria of the goal."""

    @abstractmethod
    def _planned_criteria(self, trajectory: Trajectory) -> tuple[C, list[tuple[Message, ...]]]:
        """Returns typical criteria for a plan, and the calls that would request them."""

    @abstractmethod
    def _block(self, criteria: C, room: int) -> dict[str, str]:
        """Returns the quoted criteria under their placeholder in the prompts."""

    @abstractmethod
    def _parse_rating(self, criteria: C, reply: Reply) -> Rating:
        """Returns the rating in a reply. Raises UnparsableError."""

    @abstractmethod
    def _parse_several(self, criteria: C, reply: Reply) -> Mapping[int, Rating | UnparsableError]:
        """Returns the ratings by the number of each frame's last state. Raises UnparsableError."""

    @abstractmethod
    async def _conclude(
        self,
        criteria: C,
        messages: Callable[[Room], Sequence[Message]],
        states: Callable[[], Set[int]],
    ) -> Judgement:
        """Returns the judgement of the last call.

        After the call, `states` returns the numbers of the states in the request.
        """
