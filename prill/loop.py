"""The one loop that runs a policy in an environment. Methods plug in as policies; nobody copies this."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from prill.errors import EnvironmentFailure
from prill.protocols import Environment, Policy
from prill.types import Step, Task, Trajectory


async def rollout(
    policy: Policy,
    environment: Environment,
    task: Task,
    *,
    id: str,
    agent: str | None = None,
    max_steps: int = 30,
    timeout: float | None = None,
) -> Trajectory:
    """One episode, recorded. It ends with a final action, when the environment says so, or after `max_steps` actions.

    `timeout` bounds the whole episode in seconds. When the environment fails or time runs out, the trajectory keeps
    the steps so far and says so in `error`. `metadata["ended_by"]` is one of agent, environment, max_steps, error.
    30 steps is the limit of the paper's web experiments (arXiv 2404.06474, section 4.2).
    """
    steps: list[Step] = []
    answer = error = final = None
    ended_by = "max_steps"
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            final = await environment.reset(task)
            policy.reset(task)
            for _ in range(max_steps):
                step = await policy.act(final)
                steps.append(step)
                if step.action.is_final:
                    answer, ended_by = step.action.value, "agent"
                    break
                final, done = await environment.step(step.action)
                if done:
                    ended_by = "environment"
                    break
    except EnvironmentFailure as failure:
        error, ended_by, final = str(failure), "error", None
    except TimeoutError:
        if not limit.expired():
            raise
        error, ended_by, final = f"the episode took more than {timeout:g} s", "error", None
    trajectory = Trajectory(id=id, task=task, agent=agent, steps=tuple(steps), final=final, answer=answer, error=error)
    return replace(trajectory, metadata={"ended_by": ended_by})
