"""WebJudge: key points of the goal, a rating of every frame by them, a verdict from what is left (arXiv 2504.01382)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from prill.cache import DiskCache
from prill.errors import Unparsable, UsageError
from prill.evaluators.frames import (
    Frame,
    chosen,
    distinct_frames,
    frame_block,
    images_read,
    planned_frames,
    remarks,
    verdict_blocks,
)
from prill.evaluators.judgement import Judgement, verdict_of
from prill.evaluators.outcome import MAX_TOKENS, STATUS, judge_outcome
from prill.models.calls import ROOM, PerGoal, ask, filled, planned, prompt_of, together
from prill.models.prompts import content_hash, quoted, shorten
from prill.models.replies import RecordFormat, ReplyFormat
from prill.protocols import Captioner, LanguageModel, Message
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class KeyPoints:
    """What must hold for a goal to count as reached."""

    key_points: tuple[str, ...]


KEY_POINTS = RecordFormat(KeyPoints, '{"key_points": ["<the first>", "<the second>", …]}')
RATING = ReplyFormat("description", "score", ("1", "2", "3", "4", "5"))
TOP_K = 10
_FILES = ("webjudge_key_points", "webjudge_frame", "webjudge_verdict")


class WebJudge:
    """Judges by the frames that tell most about the key points of the goal, and always by the last.

    Without a captioner the model looks at screenshots, with one it reads what the captioner makes of the states.

    top_k           how many frames to show besides the last: those with the best ratings, in their order in time
    least_score     frames rated lower (1 to 5) are left out; the original's threshold is 3
    include_answer  show the agent's answer, as a claim; without it the agent's messages lose their words in the history,
                    too, since the protocol's authors found that the answer leads to wrong successes
    cache           keeps key points across runs; within this object they are asked for once for each goal in any case

    Version 1 differs from the original protocol: the wording is ours; the best-rated frames are kept, where the original
    keeps the first 50 that pass and so drops the end; the last frame is always shown; equal frames are rated once; a failed
    call leaves the trajectory unscored, where the original counts a failure; a frame whose rating cannot be read is shown
    all the same and the verdict's reason says so (more of them than `top_k`: unscored, since some would go unseen); a goal
    for which the model finds no key points is its own; there is a reading for text.
    """

    def __init__(
        self,
        model: LanguageModel,
        captioner: Captioner | None = None,
        *,
        top_k: int = TOP_K,
        least_score: int = 3,
        include_answer: bool = False,
        max_tokens: int = MAX_TOKENS,
        cache: DiskCache | None = None,
    ) -> None:
        if top_k < 1 or not 1 <= least_score <= 5:
            raise UsageError(f"top k {top_k}, least score {least_score}: give at least one frame, and a score from 1 to 5")
        self.model = model
        self.captioner = captioner
        self.top_k = top_k
        self.least_score = least_score
        self.include_answer = include_answer
        self.max_tokens = max_tokens
        self._key_points = PerGoal(KEY_POINTS, cache)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """Changes whenever a verdict could."""
        params = {
            "captioner": None if self.captioner is None else self.captioner.name,
            "top_k": self.top_k,
            "least_score": self.least_score,
            "include_answer": self.include_answer,
            "max_tokens": self.max_tokens,
        }
        forms = (form.instructions(as_json=as_json) for form in (KEY_POINTS, RATING, STATUS) for as_json in (True, False))
        prompt = content_hash(*(prompt_of(name).text for name in _FILES), *forms)
        return EvaluatorInfo("webjudge", "1", self.model.name, prompt, params)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """All of them: each is rated."""
        return images_read(trajectory.observations, self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` when no state has what is looked at."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Key points (also where another trajectory of the goal will have brought them), a rating a frame, the verdict."""
        frames = planned_frames(trajectory, self.captioner)
        if not frames:
            return Usage()
        goal, points = trajectory.task.goal, "x" * 500
        calls = [_point_messages(goal), *(self._rating_messages(trajectory, points, frame, ROOM) for frame in frames)]
        shown = frames[-1 - self.top_k :]
        calls.append(self._verdict_messages(trajectory, points, shown, ["x" * 500] * len(shown), ROOM))
        return sum((planned(messages, self.max_tokens) for messages in calls), start=Usage())

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        frames = await distinct_frames(trajectory, self.captioner)
        points = await self._points(trajectory.task.goal)
        ratings = await together([self._rate(trajectory, points, frame) for frame in frames])
        scores = [score for score, _ in ratings]
        unread = scores.count(None)
        if unread > self.top_k:
            raise Unparsable(f"the ratings of {unread} of {len(frames)} frames cannot be read; the last: {ratings[-1][1]}")

        rooms: list[int] = []

        def messages(room: int) -> tuple[Message, ...]:
            rooms.append(room)
            places = chosen(scores, max(1, self.top_k * room // ROOM), self.least_score)
            descriptions = ["" if scores[i] is None else ratings[i][1] for i in places]
            return self._verdict_messages(trajectory, points, [frames[i] for i in places], descriptions, room)

        found = await judge_outcome(self.model, messages, prompt_of("webjudge_verdict"), self.max_tokens)
        return replace(found, reason=found.reason + remarks(unread, len(frames), rooms))

    async def _points(self, goal: str) -> str:
        prompt = prompt_of("webjudge_key_points")
        key = content_hash(self.model.name, prompt.text, KEY_POINTS.shape, str(self.max_tokens), goal)
        made = await self._key_points.get(
            key, lambda: ask(self.model, lambda _: _point_messages(goal), KEY_POINTS, prompt, self.max_tokens)
        )
        points = [" ".join(point.split()) for point in made.key_points if point.strip()] or [" ".join(goal.split())]
        return "\n".join(f"{i}. {point}" for i, point in enumerate(points, 1))

    async def _rate(self, trajectory: Trajectory, points: str, frame: Frame) -> tuple[int | None, str]:
        """Score and description; None and what was wrong with the reply."""
        try:
            reply = await ask(
                self.model,
                lambda room: self._rating_messages(trajectory, points, frame, room),
                RATING,
                prompt_of("webjudge_frame"),
                self.max_tokens,
            )
        except Unparsable as unread:
            return None, str(unread)
        return int(reply.fields[RATING.verdict]), reply.fields[RATING.text]

    def _rating_messages(self, trajectory: Trajectory, points: str, frame: Frame, room: int) -> tuple[Message, ...]:
        block, images = frame_block([frame], [""], trajectory, room)
        return filled(
            "webjudge_frame",
            images,
            goal=quoted("request", trajectory.task.goal),
            points=quoted("key-points", points),
            frame=block,
        )

    def _verdict_messages(
        self, trajectory: Trajectory, points: str, frames: Sequence[Frame], descriptions: Sequence[str], room: int
    ) -> tuple[Message, ...]:
        values, images = verdict_blocks(trajectory, frames, descriptions, room, answer=self.include_answer)
        return filled("webjudge_verdict", images, points=quoted("key-points", shorten(points, room)), **values)


def _point_messages(goal: str) -> tuple[Message, ...]:
    return filled("webjudge_key_points", (), goal=quoted("request", goal))
