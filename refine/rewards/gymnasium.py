"""A Gymnasium wrapper that judges an episode when it ends:
`judge_episodes(env, prill.reward("vlm", model=…))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import MissingExtraError, UsageError
from prill.refine.rewards.loops import run_blocking
from prill.refine.rewards.reward import Reward, RewardResult
from prill.types import Action, Observation, Step, Task, Trajectory

if TYPE_CHECKING:
    import gymnasium

_GOALS = ("goal", "utterance", "instruction")
_PICTURES = ("screenshot", "pixels", "image")
_TEXTS = ("text", "axtree_txt", "pruned_html", "dom_txt")


def judge_episodes(
    env: gymnasium.Env[Any, Any],
    reward: Reward,
    *,
    goal: str | Callable[[Any, Mapping[str, Any]], str] | None = None,
    observe: Callable[[Any, Mapping[str, Any]], Observation] | None = None,
    describe: Callable[[Any], Action] | None = None,
    replace: bool = True,
    unscored: Literal["raise", "own"] = "raise",
) -> gymnasium.Wrapper[Any, Any, Any, Any]:
    """Wraps a Gymnasium environment so that a judge rewards each episode at its end, terminated or
    truncated.

    Every step has reward 0, and the last one the judge's reward. `info["judge"]` of the last step
    holds `reward`, `success`, `score`, `unscored`, `reason`, `turn_rewards`, `env_return` and the
    parts of the reward. Without a verdict the last step raises, or has the number of
    `on_unscored="value"`.

    Args:
        env: The environment.
        reward: The reward.
        goal: The agent's goal, or a function of the first observation and info. None: the
            observation's or the info's `goal`, `utterance` or `instruction`.
        observe: Converts an observation and its info. None: a colour array of shape (height, width,
            3) is a screenshot, a string is text, a mapping is searched for both, and anything else
            is formatted as text, with the rendered image if the environment renders arrays.
        describe: Converts an action. None: it is formatted as text.
        replace: Replace the environment's rewards. False: only add `info["judge"]`, which has the
            reward None where there is no verdict.
        unscored: Without a verdict, `raise`, or give the environment's `own` return: the trainer
            must then leave out an episode whose `info["judge"]["reward"]` is None.

    Raises:
        MissingExtraError: gymnasium is not installed.
    """
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium") from None
    if replace and unscored == "raise":
        reward = reward.raising()

    class JudgedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
        """A wrapper that records each episode and judges it at the end."""

        def __init__(self) -> None:
            super().__init__(env)
            self.episodes = 0
            self.steps: list[Step] = []
            self.goal = ""
            self.current = Observation()
            self.env_return = 0.0

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            observation, info = self.env.reset(**options)
            self.goal = _goal(goal, observation, info)
            self.episodes, self.steps, self.env_return = self.episodes + 1, [], 0.0
            self.current = self._observed(observation, info)
            return observation, info

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            observation, env_reward, terminated, truncated, info = self.env.step(action)
            self.steps.append(Step(self.current, (describe or _action)(action)))
            self.current, self.env_return = (
                self._observed(observation, info),
                self.env_return + float(env_reward),
            )
            if not (terminated or truncated):
                return observation, 0.0 if replace else env_reward, terminated, truncated, info
            result = run_blocking(reward.result(self._trajectory(truncated)))
            info = {**info, "judge": _info(result, self.env_return)}
            if replace:
                env_reward = self.env_return if result.reward is None else result.reward
            return observation, env_reward, terminated, truncated, info

        def _observed(self, observation: Any, info: Mapping[str, Any]) -> Observation:
            if observe is not None:
                return observe(observation, info)
            made = _observation(observation)
            if made is not None:
                return made
            picture = self.env.render() if self.env.render_mode == "rgb_array" else None
            return Observation(_picture(picture), text=str(observation))

        def _trajectory(self, truncated: bool) -> Trajectory:
            name = (
                self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
            )
            task = Task(id=name, goal=self.goal)
            metadata = {"truncated": bool(truncated)}
            id = f"{name}#{self.episodes}"
            return Trajectory(
                id=id, task=task, steps=tuple(self.steps), final=self.current, metadata=metadata
            )

    return JudgedEpisodes()


def _info(result: RewardResult, env_return: float) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "reward": result.reward,
        "success": verdict.success,
        "score": verdict.score,
        "unscored": verdict.unscored,
        "reason": result.problem or verdict.reason,
        "turn_rewards": result.turn_rewards,
        "env_return": env_return,
        **result.parts,
    }


def _goal(
    goal: str | Callable[[Any, Mapping[str, Any]], str] | None,
    observation: Any,
    info: Mapping[str, Any],
) -> str:
    if isinstance(goal, str):
        return goal
    if goal is not None:
        return goal(observation, info)
    for table in (observation, info):
        for key in _GOALS if isinstance(table, Mapping) else ():
            if isinstance(found := table.get(key), str) and found:
                return found
    raise UsageError(
        f"neither the observation nor the info contains the goal ({', '.join(_GOALS)}); "
        "give it as `goal`"
    )


def _observation(observation: Any) -> Observation | None:
    """Converts an observation without rendering; None unless it is an image, a text, or a mapping
    with one of them.
    """
    if isinstance(observation, Observation):
        return observation
    if isinstance(observation, str):
        return Observation(text=observation)
    if isinstance(observation, Mapping):
        picture = next(
            (observation[key] for key in _PICTURES if observation.get(key) is not None), None
        )
        text = next(
            (observation[key] for key in _TEXTS if isinstance(observation.get(key), str)), None
        )
        url = observation.get("url")
        if picture is None and text is None:
            return None
        return Observation(_picture(picture), text, url if isinstance(url, str) else None)
    picture = _picture(observation) if getattr(observation, "ndim", 0) == 3 else None
    return None if picture is None else Observation(picture)


def _picture(value: Any) -> Any:
    """Converts a uint8 array with three or four channels to a PIL image. Returns None for any other
    array, and other values unchanged.
    """
    if not hasattr(value, "ndim"):
        return value
    if value.ndim != 3 or value.shape[2] not in (3, 4) or str(value.dtype) != "uint8":
        return None
    from PIL import Image

    return Image.fromarray(value)


def _action(action: Any) -> Action:
    return action if isinstance(action, Action) else Action("other", str(action))
