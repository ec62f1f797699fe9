"""A rubric for OpenEnv: judges an episode when it ends.

MyEnvironment(rubric=judge_rubric(prill.reward("vlm", model="gpt-4o")))
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from prill.errors import InputError, MissingExtraError, UsageError
from prill.refine.rewards.loops import run_blocking
from prill.refine.rewards.reward import Reward, RewardResult
from prill.refine.rewards.serialization import as_item
from prill.types import Action, Observation, Step, Task, Trajectory

if TYPE_CHECKING:
    from openenv.core.rubrics import TrajectoryRubric

Episode = Sequence[tuple[Any, Any]]


def judge_rubric(
    reward: Reward,
    *,
    goal: str | None = None,
    trajectory_of: Callable[[Episode], Trajectory] | None = None,
    intermediate_reward: float = 0.0,
) -> TrajectoryRubric:
    """Makes an OpenEnv `TrajectoryRubric` that rewards an episode once an observation is `done`.

    Without a verdict, the step raises, or returns the number of `on_unscored="value"`; it never
    returns 0 by default. The last step blocks until the judge has finished.

    Args:
        reward: The reward.
        goal: The agent's goal. None: the first `goal` of an observation.
        trajectory_of: Converts the pairs of action and observation. None: `episode_trajectory` with
            `goal`.
        intermediate_reward: The reward of every other step.

    Returns:
        The rubric. Its `compute_step_rewards` returns the rewards of a step judge, or else the
        reward at the last step.

    Raises:
        MissingExtraError: openenv is not installed.
    """
    try:
        from openenv.core.rubrics import TrajectoryRubric
    except ModuleNotFoundError:
        raise MissingExtraError("openenv") from None
    reward = reward.raising()
    convert = trajectory_of or (lambda episode: episode_trajectory(episode, goal=goal))

    class JudgeRubric(TrajectoryRubric):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__(intermediate_reward=intermediate_reward)
            self.result: RewardResult | None = None
            self._judged: Trajectory | None = None

        def score_trajectory(self, trajectory: Episode) -> float:
            # an episode without a verdict must not keep the result of an earlier one
            self.result = self._judged = None
            item = as_item(lambda: convert(trajectory), "episode")
            self._judged = item if isinstance(item, Trajectory) else None
            self.result = run_blocking(reward.result(item))
            assert self.result.reward is not None  # it raises instead
            return self.result.reward

        def compute_step_rewards(self) -> list[float]:
            if self.result is None or self._judged is None or self.result.reward is None:
                raise UsageError(
                    "no episode was judged since the last reset, so its steps have no rewards"
                )
            if self.result.verdict.rewards is not None:
                return list(self.result.verdict.rewards)
            return [0.0] * (len(self._trajectory) - 1) + [self.result.reward]

        def reset(self) -> None:
            super().reset()
            self.result = self._judged = None

    return JudgeRubric()


def episode_trajectory(episode: Episode, *, goal: str | None = None) -> Trajectory:
    """Converts pairs of an action and the observation after it into a trajectory.

    Reads the fields `screenshot` (bytes, base64 or a data URL), `text`, `url` and `goal` of an
    observation, and all fields of an action. The pairs do not include the observation before the
    first action. Raises InputError if there is no goal.
    """
    states = [_state(observation) for _, observation in episode]
    goal = goal or next(
        (str(observation.goal) for _, observation in episode if getattr(observation, "goal", None)),
        None,
    )
    if not goal:
        raise InputError(
            "the goal is unknown, because the observations have none; give it to the rubric"
        )
    seen = [Observation(), *states[:-1]]
    steps = tuple(
        Step(before, _action(action)) for before, (action, _) in zip(seen, episode, strict=True)
    )
    return Trajectory(
        id="episode", task=Task(goal=goal), steps=steps, final=states[-1] if states else None
    )


def _state(observation: Any) -> Observation:
    text, url = getattr(observation, "text", None), getattr(observation, "url", None)
    return Observation(
        _picture(getattr(observation, "screenshot", None)), text=text or None, url=url or None
    )


def _picture(screenshot: Any) -> Any:
    if not isinstance(screenshot, str):
        return screenshot
    try:  # a string is never read as a path, since the environment is not trusted
        return base64.b64decode(screenshot.rpartition(",")[2], validate=True) or None
    except binascii.Error as error:
        raise InputError(f"a screenshot must be base64 or a data URL: {error}") from None


def _action(action: Any) -> Action:
    if isinstance(action, str):
        return Action("other", action)
    fields = action.model_dump(exclude={"metadata"}, exclude_none=True)
    texts = [value for value in fields.values() if isinstance(value, str)]
    text = (
        texts[0]
        if len(fields) == 1 and texts
        else msgspec.json.encode(fields, enc_hook=str).decode()
    )
    return Action("other", text)
