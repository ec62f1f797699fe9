"""The Gymnasium wrapper: episodes are judged when they end, and the environment's own reward is not
lost.
"""

import asyncio
from typing import Any, ClassVar

import pytest

gymnasium = pytest.importorskip(
    "gymnasium", reason="gymnasium is not installed: pip install gymnasium"
)
np = pytest.importorskip("numpy")

from prill.errors import NoEvidenceError, UsageError  # noqa: E402
from prill.refine.rewards import Reward, RewardSpec, judge_episodes  # noqa: E402
from prill.types import Action, EvaluatorInfo, Trajectory, Verdict  # noqa: E402

INFO = EvaluatorInfo("noting", "1")


class Noting:
    """Success where the last state says so; no verdict where it says nothing."""

    info = INFO

    def __init__(self) -> None:
        self.judged: list[Trajectory] = []

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0)
        self.judged.append(trajectory)
        text = trajectory.final.text if trajectory.final else None
        if not text:
            return Verdict(
                id=trajectory.id, unscored="no_evidence", reason="no text", evaluator=INFO
            )
        return Verdict(id=trajectory.id, success="done" in text, score=0.75, evaluator=INFO)


class Form(gymnasium.Env):  # type: ignore[misc]
    """Shows a text that says what was typed last; three steps are too many."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Dict(
        {"text": gymnasium.spaces.Text(20), "goal": gymnasium.spaces.Text(20)}
    )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return {"text": "empty", "goal": "type done"}, {}

    def step(self, action: str) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        self.count += 1
        return (
            {"text": action, "goal": "type done"},
            0.25,
            action == "done",
            self.count == 3,
            {"own": 1},
        )


def wrapped(**options: Any) -> tuple[Noting, Any]:
    judge = Noting()
    return judge, judge_episodes(Form(), Reward(judge, RewardSpec(kind="score")), **options)


def test_episode_ends_with_the_judges_reward() -> None:
    judge, env = wrapped()
    for episode in (1, 2):
        env.reset(seed=0)
        first, last = env.step("hello"), env.step("done")
        assert (first[1], "judge" in first[4]) == (0.0, False)
        assert (last[1], last[2], last[4]["own"]) == (0.75, True, 1)
        told = last[4]["judge"]
        assert (told["reward"], told["success"], told["env_return"], told["unscored"]) == (
            0.75,
            True,
            0.5,
            None,
        )
        trajectory = judge.judged[-1]
        assert trajectory.id == f"Form#{episode}"
        assert trajectory.task.goal == "type done"
        assert [step.action for step in trajectory.steps] == [
            Action("other", "hello"),
            Action("other", "done"),
        ]
        assert [state.text for state in trajectory.observations] == ["empty", "hello", "done"]
    assert len(judge.judged) == 2


def test_unscored_episodes_raise_unless_their_own_return_is_asked_for() -> None:
    judge, env = wrapped()
    env.reset()
    env.step("a")
    env.step("b")
    with pytest.raises(NoEvidenceError, match="no reward"):
        env.step("")
    assert judge.judged[0].metadata["truncated"]
    _, env = wrapped(unscored="own")
    env.reset()
    *_, last = (env.step(text) for text in ("a", "b", ""))
    assert (last[1], last[3]) == (0.75, True)
    assert (last[4]["judge"]["reward"], last[4]["judge"]["unscored"]) == (None, "no_evidence")
    _, env = wrapped(replace=False)
    env.reset()
    *_, last = (env.step(text) for text in ("a", "b", ""))
    assert (last[1], last[4]["judge"]["reward"]) == (0.25, None)


def test_own_rewards_can_stay_as_they_are() -> None:
    _, env = wrapped(replace=False)
    env.reset()
    steps = [env.step("a"), env.step("done")]
    assert [step[1] for step in steps] == [0.25, 0.25]
    assert steps[1][4]["judge"]["reward"] == 0.75


def test_rendered_pictures_are_screenshots() -> None:
    judge = Noting()

    class Pole(Form):
        metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
        render_mode = "rgb_array"

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros(4), {}

        def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.ones(4), 1.0, False, True, {}

        def render(self) -> Any:
            return np.zeros((4, 6, 3), np.uint8)

    env = judge_episodes(Pole(), Reward(judge), goal="Keep the pole upright")
    env.reset()
    env.step(0)
    assert all(state.screenshot and state.text for state in judge.judged[0].observations)


def test_arrays_of_colours_are_screenshots() -> None:
    judge = Noting()

    class Screen(Form):
        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            super().reset(**options)
            return np.zeros((4, 6, 3), np.uint8), {"goal": "see"}

        def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return (
                {"screenshot": np.zeros((4, 6, 3), np.uint8), "text": "done"},
                0.0,
                True,
                False,
                {},
            )

    env = judge_episodes(Screen(), Reward(judge))
    env.reset()
    assert env.step("x")[1] == 1.0
    assert all(state.screenshot for state in judge.judged[0].observations)


def test_an_unknown_goal_is_asked_for() -> None:
    class Silent(Form):
        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            return "a page", {}

    with pytest.raises(UsageError, match="give it as `goal`"):
        judge_episodes(Silent(), Reward(Noting())).reset()
