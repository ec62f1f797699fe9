"""The reward APIs of OpenRLHF, slime and NeMo-Gym.

Of the three, only NeMo-Gym can express "no reward" in a response of status 200, by its failure
class. The others therefore get an error status for a trajectory without a verdict: their clients
retry and then drop the reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from prill.actions.tool_calls import COMPUTER, response_call
from prill.errors import InputError
from prill.io.images import open_image
from prill.refine.rewards import RewardResult
from prill.refine.rewards.serialization import compute_digest, get_text
from prill.service.request_parsing import RequestParser, decoded_image
from prill.types import Action, Observation, Platform, Step, Task, Trajectory


class OpenRLHF(msgspec.Struct):
    """A request of OpenRLHF's client: lists of whole texts, their prompts and labels, in the same
    order.
    """

    query: list[str]
    prompts: list[str]
    labels: list[Any] | None = None

    def trajectories(self, parser: RequestParser) -> list[Trajectory]:
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
            parser.of_value(label) or parser.answered(prompt, text.removeprefix(prompt))
            for text, prompt, label in zip(self.query, self.prompts, labels, strict=True)
        ]


def openrlhf_answer(results: Sequence[RewardResult]) -> dict[str, Any]:
    """Returns `scores` in [0, 1], as its dynamic filtering requires, and `extra_logs` with constant
    keys.
    """
    numbers = [result.numbers for result in results]
    rewards = [_number(result) for result in results]
    scores = [
        min(1.0, max(0.0, reward if result.verdict.score is None else result.verdict.score))
        for result, reward in zip(results, rewards, strict=True)
    ]
    logs = {key: [one[key] for one in numbers] for key in (numbers[0] if numbers else {})}
    return {"rewards": rewards, "scores": scores, "extra_logs": logs}


class Slime(msgspec.Struct):
    """A request of slime's client: a prompt (a text or a chat), the response, and the label."""

    response: str
    prompt: str | list[dict[str, Any]] = ""
    label: Any = None

    def trajectory(self, parser: RequestParser) -> Trajectory:
        """Returns the trajectory in the label, or else one made of prompt and response. Raises
        InputError.
        """
        return parser.of_value(self.label) or parser.answered(self.prompt, self.response)


def slime_answer(result: RewardResult, *, detail: bool) -> Any:
    """Returns the reward as a number, or a table for slime's reward key."""
    reward = _number(result)
    return {"reward": reward, **result.numbers} if detail else reward


def _number(result: RewardResult) -> float:
    assert result.reward is not None  # results without a reward were rejected before
    return result.reward


class NemoGym(msgspec.Struct):
    """A request of NeMo-Gym: the model's input, its response (OpenAI's Responses), and the row's
    fields.
    """

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    trajectory: Any = None

    def made(self, parser: RequestParser) -> Trajectory:
        """Returns the trajectory in the row's field `trajectory`, or else one made of the response.

        Raises InputError.
        """
        return parser.of_value(self.trajectory) or _Responses(parser).trajectory(
            self.responses_create_params, self.response
        )


_CLASS, _ERROR = "_ng_failure_class", "_ng_failure_judge_error"


def nemo_answer(row: dict[str, Any], result: RewardResult) -> dict[str, Any]:
    """Returns the row with its reward.

    A row without a verdict has the failure class that excludes it from the metrics; its reward of 0
    only satisfies the schema.
    """
    if result.reward is None:
        return nemo_failure(row, result.problem)
    # from a row that failed before
    judged = {key: value for key, value in row.items() if key not in (_CLASS, _ERROR)}
    return {**judged, "reward": result.reward, "reward_components": result.numbers}


def nemo_failure(row: dict[str, Any], reason: str) -> dict[str, Any]:
    """Returns the row with NeMo-Gym's marker for a failed judge."""
    return {**row, "reward": 0.0, _CLASS: "judge_failed", _ERROR: reason}


@dataclass(slots=True)
class _Responses:
    """Converts the items of a response to steps.

    A call is an action, and its result is the next observation.
    """

    parser: RequestParser
    images: int = 0

    def trajectory(self, request: dict[str, Any], response: dict[str, Any]) -> Trajectory:
        given, items = request.get("input"), response.get("output")
        if not isinstance(items, list):
            raise InputError("response.output: expected the list of items that the model produced")
        turns = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)
        goal = next(
            (
                text
                for turn in reversed(turns)
                if turn.get("role", "user") == "user" and (text := get_text(turn))
            ),
            None,
        )
        if goal is None:
            raise InputError(
                "responses_create_params.input contains no user text, so there is no goal "
                "to judge by"
            )
        seen = Observation(text=goal)
        for turn in turns:
            seen = self._find_image(turn, seen)
        steps: list[Step] = []
        answer: list[str] = []
        thoughts: list[str] = []
        for item in _objects(items):
            kind = item.get("type")
            if kind == "reasoning":
                thoughts += [
                    part["text"]
                    for part in _objects(item.get("summary"))
                    if isinstance(part.get("text"), str)
                ]
            elif kind in (COMPUTER, "function_call"):
                for action in self._actions(item, seen):
                    steps.append(Step(seen, action, "\n".join(thoughts) or None))
                    thoughts, seen = [], Observation()
            elif kind in ("computer_call_output", "function_call_output"):
                seen = self._seen(item.get("output"), seen)
            elif kind == "message" and (text := get_text(item)):
                answer.append(text)
        final_answer = answer[-1] if answer else None
        if final_answer is not None or not steps:
            steps.append(
                Step(seen, Action("answer", value=final_answer or ""), "\n".join(thoughts) or None)
            )
        platform: Platform = (
            "web" if any(item.get("type") == COMPUTER for item in _objects(items)) else "other"
        )
        digest = compute_digest((goal, items))
        final = seen if final_answer is None and steps else None
        task = Task(goal=goal, platform=platform)
        return Trajectory(
            id=f"response-{digest}", task=task, steps=tuple(steps), final=final, answer=final_answer
        )

    def _actions(self, item: dict[str, Any], seen: Observation) -> list[Action]:
        """Returns the actions of one item.

        A computer call has a list of actions; in the tool's preview it had a single one.
        """
        size = self._size(seen)
        if item["type"] == "function_call":
            given = item.get("arguments")
            arguments = (
                given if isinstance(given, str | dict) else msgspec.json.encode(given).decode()
            )
            return [response_call(str(item.get("name")), arguments, size)]
        actions = _objects(item.get("actions")) or _objects([item.get("action")]) or [{}]
        return [response_call(COMPUTER, action, size) for action in actions]

    def _seen(self, output: Any, before: Observation) -> Observation:
        if isinstance(output, str):
            return Observation(text=output)
        parts = [output] if isinstance(output, dict) else _objects(output)
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        seen = Observation(
            text="\n".join(texts) or None,
            url=next((u for p in parts if isinstance(u := p.get("current_url"), str)), None),
        )
        return self._find_image({"content": parts}, seen)

    def _find_image(self, turn: dict[str, Any], seen: Observation) -> Observation:
        for part in _objects(turn.get("content")):
            address = part.get("image_url")
            if isinstance(address, str):
                if not address.startswith("data:"):
                    raise InputError(
                        "an image is given by a URL, which is not fetched; send it inline, "
                        "as a data URL"
                    )
                self.images += 1
                if self.images > self.parser.max_images:
                    raise InputError(
                        f"more than {self.parser.max_images} images, which is the limit"
                    )
                data = decoded_image(address, "image_url")
                self.parser.check(data, "image_url")
                seen = Observation(data, seen.text, seen.url)
        return seen

    def _size(self, seen: Observation) -> tuple[int, int] | None:
        if not seen.screenshot:
            return None
        with Path(seen.screenshot).open("rb") as file:
            return open_image(BytesIO(file.read()), "the screenshot").size


def _objects(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
