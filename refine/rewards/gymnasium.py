"""A Gymnasium wrapper that judges an episode when it ends:
`judge_episodes(env, prill.reward("vlm", model=…))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
) -> gymnasium.Wrapper[Any, Any, Any, Any]:
    """Wraps a Gymnasium environment so that a judge rewards each episode at its end, terminated or
    truncated.

    Every step has reward 0, and the last one the judge's reward. Without a verdict the last step
    has the environment's own return, and `info["judge"]["reward"]` is None: the trainer should
    leave the episode out. `info["judge"]` of the last step holds `reward`, `success`, `score`,
    `unscored`, `reason`, `env_return` and the parts of the reward.

    Args:
        env: The environment.
        reward: The reward.
        goal: The agent's goal, or a function of the first observation and info. None: the
            observation's or the info's `goal`, `utterance` or `instruction`.
        observe: Converts an observation and its info. None: a colour array of shape (height, width,
            3) is a screenshot, a string is text, a mapping is searched for both, and anything else
            is formatted as text, with the rendered image if the environment renders arrays.
        describe: Converts an action. None: it is formatted as text.
        replace: Replace the environment's rewards. False: only add `info["judge"]`.

    Returns:
        The wrapped environment.

    Raises:
        MissingExtraError: gymnasium is not installed.
    """
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium") from None

    class JudgedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
        """A wrapper that records each episode and judges it at the end."""

        def __init__(self) -> None:
            super().__init__(env)
            self.episodes = 0
            self.steps: list[Step] = []
            self.goal = ""
            self.now = Observation()
            self.own = 0.0

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            seen, info = self.env.reset(**options)
            self.goal = _goal(goal, seen, info)
            self.episodes, self.steps, self.own = self.episodes + 1, [], 0.0
            self.now = self._observed(seen, info)
            return seen, info

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            seen, own, terminated, truncated, info = self.env.step(action)
            self.steps.append(Step(self.now, (describe or _action)(action)))
            self.now, self.own = self._observed(seen, info), self.own + float(own)
            if not (terminated or truncated):
                return seen, 0.0 if replace else own, terminated, truncated, info
            result = run_blocking(reward.result(self._trajectory(truncated)))
            info = {**info, "judge": _info(result, self.own)}
            if replace:
                own = self.own if result.reward is None else result.reward
            return seen, own, terminated, truncated, info

        def _observed(self, seen: Any, info: Mapping[str, Any]) -> Observation:
            if observe is not None:
                return observe(seen, info)
            made = _observation(seen)
            if made is not None:
                return made
            picture = self.env.render() if self.env.render_mode == "rgb_array" else None
            return Observation(_picture(picture), text=str(seen))

        def _trajectory(self, truncated: bool) -> Trajectory:
            name = (
                self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
            )
            task = Task(id=name, goal=self.goal)
            metadata = {"truncated": bool(truncated)}
            id = f"{name}#{self.episodes}"
            return Trajectory(
                id=id, task=task, steps=tuple(self.steps), final=self.now, metadata=metadata
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
        "env_return": env_return,
        **result.parts,
    }


def _goal(
    goal: str | Callable[[Any, Mapping[str, Any]], str] | None, seen: Any, info: Mapping[str, Any]
) -> str:
    if isinstance(goal, str):
        return goal
    if goal is not None:
        return goal(seen, info)
    for table in (seen, info):
        for key in _GOALS if isinstance(table, Mapping) else ():
            if isinstance(found := table.get(key), str) and found:
                return found
    raise UsageError(
        f"neither the observation nor the info contains the goal ({', '.join(_GOALS)}); "
        "give it as `goal`"
    )


def _observation(seen: Any) -> Observation | None:
    """Converts an observation without rendering; None unless it is an image, a text, or a mapping
    with one of them.
    """
    if isinstance(seen, Observation):
        return seen
    if isinstance(seen, str):
        return Observation(text=seen)
    if isinstance(seen, Mapping):
        picture = next((seen[key] for key in _PICTURES if seen.get(key) is not None), None)
        text = next((seen[key] for key in _TEXTS if isinstance(seen.get(key), str)), None)
        url = seen.get("url")
        if picture is None and text is None:
            return None
        return Observation(_picture(picture), text, url if isinstance(url, str) else None)
    picture = _picture(seen) if getattr(seen, "ndim", 0) == 3 else None
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
