"""The Gymnasium wrapper around MiniWoB++ in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prill.emulators.miniwob.environment import MiniWoB
from prill.policies.scripted.policy import ScriptedPolicy
from prill.refine.rewards import Reward, judge_episodes, run_blocking
from prill.types import Action, Observation
from tests.integration.refine.rewards.test_gymnasium import Noting, gymnasium
from tests.support.chromium import need_chromium


@pytest.mark.slow
def test_miniwob_episodes_are_judged(tmp_path: Path) -> None:
    need_chromium("miniwob")
    inner, policy = MiniWoB(tmp_path, announce_end=False), ScriptedPolicy("solve")
    task = run_blocking(inner.task("click-test-2", 3))

    class Pages(gymnasium.Env):  # type: ignore[misc]
        """prill's MiniWoB++ as a Gymnasium environment."""

        def reset(self, **options: Any) -> tuple[Observation, dict[str, Any]]:
            self.seen = run_blocking(inner.reset(task))
            return self.seen, {"goal": task.goal}

        def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
            if not action.is_final:
                self.seen, over = run_blocking(inner.step(action))
            return self.seen, 0.0, action.is_final or over, False, {}

        def close(self) -> None:
            run_blocking(inner.close())

    judge = Noting()
    env = judge_episodes(Pages(), Reward(judge))
    policy.reset(task)
    (seen, info), over = env.reset(), False
    while not over:
        seen, _, over, _, info = env.step(run_blocking(policy.act(seen)).action)
    env.close()
    assert info["judge"]["unscored"] is None
    assert len(judge.judged) == 1
    assert judge.judged[0].task.goal == task.goal
    assert all(state.screenshot for state in judge.judged[0].observations)
