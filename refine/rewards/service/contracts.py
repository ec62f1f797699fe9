"""The requests and answers: of the service's own API, and of OpenRLHF, slime and NeMo-Gym.

Of these three, only NeMo-Gym can express "no reward" in a response of status 200, by its failure
class. The others therefore get an error status for a trajectory without a verdict: their clients
retry and then drop the reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from prill.datasets.reading.images import RecordImages
from prill.datasets.reading.responses import Response, to_trajectory
from prill.errors import InputError
from prill.io.lines import UNREADABLE, decode_as
from prill.refine.rewards import RewardResult
from prill.refine.rewards.serialization import compute_digest, decode_image, get_text
from prill.refine.rewards.service.judgements import Answer, JudgeError, RefusedError, Source
from prill.refine.rewards.service.request_parsing import RequestParser
from prill.types import Observation, Trajectory, UnscoredReason, Usage

_T = TypeVar("_T")
_SCHEMAS = "#/components/schemas"
# Reasons that lie in the trajectory, not in the judge: the same request would fail again.
_OF_INPUT = frozenset({"input", "no_evidence"})
Outcome = Answer | Exception  # of one trajectory


def decode(data: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Decodes a request's body, whose values are counted before. Raises InputError."""
    try:
        if isinstance(data, msgspec.Raw):  # a part of what was decoded
            return msgspec.json.decode(data, type=kind)
        return decode_as(data, kind, len(data))
    except UNREADABLE as error:
        raise InputError(f"the request does not have the expected form: {error}") from None


class Problem(msgspec.Struct):
    """What is wrong, as a code and as a message."""

    code: str
    message: str


class Refusal(msgspec.Struct):
    """The answer to a request that is refused."""

    error: Problem


class ScoreItem(msgspec.Struct, forbid_unknown_fields=True):
    """One trajectory: the record itself, or the path of a recorded one below the media root with
    its id.
    """

    trajectory: (
        Annotated[
            dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": f"{_SCHEMAS}/Trajectory"})
        ]
        | None
    ) = None
    path: str | None = None
    id: str | None = None
    images: dict[str, str] = msgspec.field(default_factory=dict)

    def read(self, parser: RequestParser) -> Trajectory:
        """Reads the trajectory. Raises InputError."""
        if self.trajectory is not None and self.path is None:
            return parser.trajectory(self.trajectory, self.images)
        if self.path is None or self.trajectory is not None:
            raise InputError("give either `trajectory` or `path`")
        return parser.recorded(self.path, self.id)


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to judge. Each item is parsed separately, so that an error affects only that
    item.
    """

    items: Annotated[
        list[msgspec.Raw],
        msgspec.Meta(extra_json_schema={"items": {"$ref": f"{_SCHEMAS}/ScoreItem"}}),
    ]

    def read(self, parser: RequestParser) -> list[tuple[str, Trajectory | Exception]]:
        """Reads the items: the id of each, and its trajectory or why there is none."""
        return [_read_item(item, index, parser) for index, item in enumerate(self.items)]


def _read_item(
    data: msgspec.Raw, index: int, parser: RequestParser
) -> tuple[str, Trajectory | Exception]:
    id = f"items[{index}]"
    try:
        item = decode(data, ScoreItem)
        named = item.id if item.trajectory is None else item.trajectory.get("id")
        id = named if isinstance(named, str) and named else id
        return id, item.read(parser)
    except (InputError, OSError) as error:
        return id, error


class Scored(msgspec.Struct, kw_only=True, omit_defaults=False):
    """The result of one trajectory.

    `abstained`: there is no verdict, for the reason in `unscored`; `reward` is then null unless the
    service is configured to send a number instead.
    """

    id: str
    abstained: bool = True
    reward: float | None = None
    success: bool | None = None
    score: float | None = None
    unscored: UnscoredReason | None
    reason: str
    rewards: tuple[float, ...] | None = None
    parts: Mapping[str, float] = {}
    usage: Usage = Usage()
    seconds: float = 0.0
    key: str = ""
    source: Source | Literal["none"] = "none"


class Results(msgspec.Struct):
    """The results in the order of the request, and their total cost."""

    results: list[Scored]
    judge: str
    usage: Usage


def scored(id: str, outcome: Outcome) -> Scored:
    """Returns the result of an item. Raises errors that are not the item's or the judge's."""
    if isinstance(outcome, InputError):
        return Scored(id=id, unscored="input", reason=str(outcome))
    if isinstance(outcome, OSError):
        reason = f"an error of the service: {outcome.strerror}"
        return Scored(id=id, unscored="transport", reason=reason)
    if isinstance(outcome, JudgeError):
        return Scored(id=id, unscored="transport", reason=str(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    result, verdict = outcome.result, outcome.result.verdict
    return Scored(
        id=verdict.id,
        abstained=bool(result.problem),
        reward=result.reward,
        success=verdict.success,
        score=verdict.score,
        unscored=verdict.unscored,
        reason=result.problem if result.problem and verdict.unscored is None else verdict.reason,
        rewards=verdict.rewards,
        parts=result.parts,
        usage=verdict.usage if outcome.source == "judged" else Usage(),
        seconds=verdict.seconds,
        key=outcome.key,
        source=outcome.source,
    )


def rewards(outcomes: Sequence[Outcome]) -> list[RewardResult]:
    """Returns the results. Raises the first error."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome.result for outcome in outcomes if isinstance(outcome, Answer)]


class OpenRLHF(msgspec.Struct):
    """A request of OpenRLHF's client: lists of whole texts, their prompts and labels, in the same
    order.
    """

    query: list[str]
    prompts: list[str]
    labels: list[Any] | None = None

    def read(self, parser: RequestParser) -> list[tuple[None, Trajectory | Exception]]:
        """Returns the trajectories in the labels, or else ones made of prompt and response.

        Raises InputError.
        """
        labels = self.labels if self.labels is not None else [None] * len(self.query)
        if not len(self.query) == len(self.prompts) == len(labels):
            raise InputError(
                f"query, prompts and labels differ in length: {len(self.query)}, "
                f"{len(self.prompts)}, {len(labels)}"
            )
        return [
            (None, parser.of_value(label) or parser.answered(prompt, text.removeprefix(prompt)))
            for text, prompt, label in zip(self.query, self.prompts, labels, strict=True)
        ]


class OpenRLHFAnswer(msgspec.Struct):
    """Rewards, scores in [0, 1], as its dynamic filtering requires, and logs with constant keys."""

    rewards: list[float]
    scores: list[Annotated[float, msgspec.Meta(ge=0, le=1)]]
    extra_logs: dict[str, list[float]]


def openrlhf_answer(results: Sequence[RewardResult]) -> OpenRLHFAnswer:
    """Returns the answer. Raises RefusedError for a result without a reward."""
    numbers = [result.numbers for result in results]
    rewards = [_number(result) for result in results]
    scores = [
        min(1.0, max(0.0, reward if result.verdict.score is None else result.verdict.score))
        for result, reward in zip(results, rewards, strict=True)
    ]
    return OpenRLHFAnswer(
        rewards, scores, {key: [one[key] for one in numbers] for key in numbers[0]}
    )


class Slime(msgspec.Struct):
    """A request of slime's client: a prompt (a text or a chat), the response, and the label."""

    response: str
    prompt: str | list[dict[str, Any]] = ""
    label: Any = None

    def read(self, parser: RequestParser) -> list[tuple[None, Trajectory | Exception]]:
        """Returns the trajectory in the label, or else one made of prompt and response. Raises
        InputError.
        """
        return [(None, parser.of_value(self.label) or parser.answered(self.prompt, self.response))]


def slime_answer(result: RewardResult, *, detail: bool) -> Any:
    """Returns the reward as a number, or a table for slime's reward key. Raises RefusedError if
    there is none.
    """
    reward = _number(result)
    return {"reward": reward, **result.numbers} if detail else reward


def _number(result: RewardResult) -> float:
    if result.reward is None:
        code = result.verdict.unscored or "no_reward"
        raise RefusedError(422 if code in _OF_INPUT else 502, code, result.problem)
    return result.reward


class NemoGym(msgspec.Struct):
    """A request of NeMo-Gym: the model's input, its response (OpenAI's Responses), and the row's
    fields.
    """

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    trajectory: Any = None

    def converted(self, parser: RequestParser) -> Trajectory:
        """Returns a trajectory made of the response. Raises InputError."""
        given, output = self.responses_create_params.get("input"), self.response.get("output")
        if not isinstance(output, list):
            raise InputError("response.output: expected the list of items that the model produced")
        turns = given if isinstance(given, list) else [{"role": "user", "content": given}]
        goal = next((text for turn in reversed(turns) if (text := _user_text(turn))), None)
        if goal is None:
            raise InputError(
                "responses_create_params.input contains no user text, so there is no goal "
                "to judge by"
            )
        id = f"response-{compute_digest((goal, output))}"
        made = to_trajectory(id, (Response(output, given),), _InlineImages(parser))
        if not made.steps:
            return parser.answered(turns, made.answer or "")
        return replace(made, task=replace(made.task, goal=goal))


def read_row(
    sent: msgspec.Raw, parser: RequestParser
) -> list[tuple[dict[str, Any], Trajectory | Exception]]:
    """Returns a row of NeMo-Gym with the trajectory in its field `trajectory`, or else one made of
    its response. Raises InputError.
    """
    row = decode(sent, NemoGym)
    found = parser.of_value(row.trajectory) or row.converted(parser)
    return [(decode(sent, dict[str, Any]), found)]


class _InlineImages(RecordImages):
    """The images of a response, which must be data URLs within the parser's limits."""

    def __init__(self, parser: RequestParser) -> None:
        self._parser, self._kept = parser, list[Observation]()

    def file(self, url: str) -> str | None:
        """Returns the path of an image. Raises InputError."""
        if not url.startswith("data:"):
            raise InputError(
                "an image is given by a URL, which is not fetched; send it inline, as a data URL"
            )
        if len(self._kept) >= self._parser.max_images:
            raise InputError(f"more than {self._parser.max_images} images, which is the limit")
        data = decode_image(url, "image_url")
        self._parser.check(data, "image_url")
        self._kept.append(Observation(data))
        return self._kept[-1].screenshot


def _user_text(turn: Any) -> str:
    is_users = isinstance(turn, dict) and turn.get("role", "user") == "user"
    return get_text(turn) if is_users else ""


_CLASS, _ERROR = "_ng_failure_class", "_ng_failure_judge_error"


def nemo_answer(row: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Returns the row with its reward.

    A row without a verdict has the failure class that excludes it from the metrics; its reward of 0
    only satisfies the schema. Raises InputError.
    """
    problem = str(outcome) if isinstance(outcome, JudgeError) else ""
    if not problem:
        [result] = rewards([outcome])
        problem = result.problem if result.reward is None else ""
    if problem:
        return {**row, "reward": 0.0, _CLASS: "judge_failed", _ERROR: problem}
    # from a row that failed before
    judged = {key: value for key, value in row.items() if key not in (_CLASS, _ERROR)}
    return {**judged, "reward": result.reward, "reward_components": result.numbers}
