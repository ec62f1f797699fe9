"""WebJudge (arXiv 2504.01382): finds key points, rates each frame's relevance, then judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from prill.evaluators.evidence import asked_for, list_goals
from prill.evaluators.frames import FrameJudge, Rating
from prill.evaluators.judgement import Judgement
from prill.evaluators.outcome import STATUS, judge_outcome
from prill.models.calls import PerGoal, Room, ask, filled
from prill.models.prompts import content_hash, quoted, shorten
from prill.models.replies import RecordFormat, ReplyFormat
from prill.protocols import Form, Message, Reply
from prill.types import Findings, Task, Trajectory


@dataclass(frozen=True, slots=True)
class KeyPoints:
    """The key points of a goal."""

    # For endpoints that enforce schemas, because a small model may list key points until it is cut.
    key_points: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema={"maxLength": 300})], ...],
        Meta(extra_json_schema={"minItems": 1, "maxItems": 12}),
    ]


@dataclass(frozen=True, slots=True)
class RatedFrame:
    """The rating of one of several frames, identified by the number of its state."""

    state: int
    description: Annotated[str, Meta(extra_json_schema={"maxLength": 1000})]
    score: Literal[1, 2, 3, 4, 5]


@dataclass(frozen=True, slots=True)
class RatedFrames:
    """The ratings of several frames."""

    frames: tuple[RatedFrame, ...]


KEY_POINTS = RecordFormat(KeyPoints, '{"key_points": ["<the first>", "<the second>", …]}')
RATING = ReplyFormat("description", "score", ("1", "2", "3", "4", "5"))
RATINGS = RecordFormat(
    RatedFrames,
    '{"frames": [{"state": <its number>, "description": "<what it shows>", "score": <1 to 5>}, …]}',
)


@dataclass(frozen=True, eq=False)
class WebJudge(FrameJudge[tuple[str, ...]]):
    """A judge that uses the frames most relevant to the goal's key points, and always the last
    frame.

    Without `answer`, the texts of the agent's messages are also removed from the history.

    Differences from the original protocol: the prompts are worded differently. The best-rated
    frames are kept, whereas the original keeps the first 50 that pass and so drops the end. The
    last frame is always shown. Equal frames are rated once. A failed call makes the trajectory
    unscored, whereas the original counts a failure. A frame whose rating cannot be parsed is still
    shown, and the verdict's reason says so; with more such frames than `top_k`, the trajectory is
    unscored. If the model finds no key points, the goal is the only key point. A captioner may
    replace screenshots with text. The model may say that the evidence is insufficient. With
    `repeat_frames` False, the verdict is given by descriptions and scores, and the last frame.

    Args:
        model: The model that judges.
        spec: The settings.
        goal_cache: Keeps the key points of goals across runs. None: they are kept in this object
            only.
    """

    name: ClassVar[str] = "webjudge"
    version: ClassVar[str] = "2"
    prompt_names: ClassVar[tuple[str, ...]] = (
        "webjudge_key_points",
        "webjudge_frame",
        "webjudge_verdict",
    )
    main_prompts: ClassVar[tuple[str, ...]] = ("webjudge_verdict",)
    forms: ClassVar[tuple[Form, ...]] = (KEY_POINTS, RATING, STATUS)
    together_prompt: ClassVar[str] = "webjudge_frames"
    together_form: ClassVar[Form] = RATINGS

    @cached_property
    def _key_points(self) -> PerGoal[KeyPoints]:
        return PerGoal(KEY_POINTS, self.goal_cache)

    async def _criteria(self, trajectory: Trajectory) -> tuple[str, ...]:
        task, prompt = trajectory.task, self.prompts["webjudge_key_points"]
        key = content_hash(
            self.model.name,
            prompt.text,
            KEY_POINTS.shape,
            str(self.spec.max_tokens),
            *list_goals(task),
        )
        record = await self._key_points.get(
            key,
            lambda: ask(
                self.model,
                lambda _: self._point_messages(task),
                KEY_POINTS,
                prompt,
                self.spec.max_tokens,
            ),
        )
        points = (" ".join(point.split()) for point in record.key_points if point.strip())
        return tuple(points) or (" ".join(task.goal.split()),)

    def _planned_criteria(
        self, trajectory: Trajectory
    ) -> tuple[tuple[str, ...], list[tuple[Message, ...]]]:
        return ("x" * 497,), [self._point_messages(trajectory.task)]

    def _point_messages(self, task: Task) -> tuple[Message, ...]:
        return filled(self.prompts["webjudge_key_points"], (), goal=asked_for(task))

    def _block(self, criteria: tuple[str, ...], room: int) -> dict[str, str]:
        lines = "\n".join(f"{i}. {point}" for i, point in enumerate(criteria, 1))
        return {"points": quoted("key-points", shorten(lines, room))}

    def _parse_rating(self, criteria: tuple[str, ...], reply: Reply) -> Rating:
        return Rating(reply.fields[RATING.text], (int(reply.fields[RATING.verdict]),))

    def _parse_several(self, criteria: tuple[str, ...], reply: Reply) -> Mapping[int, Rating]:
        return {
            frame.state: Rating(frame.description, (frame.score,))
            for frame in RATINGS.read(reply).frames
        }

    async def _conclude(
        self,
        criteria: tuple[str, ...],
        messages: Callable[[Room], Sequence[Message]],
        states: Callable[[], Set[int]],
    ) -> Judgement:
        judgement = await judge_outcome(
            self.model, messages, self.prompts["webjudge_verdict"], self.spec.max_tokens
        )
        return replace(judgement, findings=Findings(key_points=criteria))
