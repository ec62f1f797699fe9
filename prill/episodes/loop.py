"""The rollout loop: runs a policy in an environment. New methods are added as policies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from prill.errors import BudgetSpentError, EnvironmentFailedError, UnscoredError
from prill.io.lines import valid_unicode
from prill.models.prompts import shared_code
from prill.protocols import Environment, Locator, Policy, ReportingAgent
from prill.types import Action, Observation, Step, Task, Trajectory

_T = TypeVar("_T", Action, Observation)
# prefix of the recorded error when the agent's model returned no action
_NO_ACTION = "the agent's model gave no action"


async def run_episode(
    policy: Policy,
    environment: Environment,
    task: Task,
    *,
    id: str,
    agent: str | None = None,
    max_steps: int = 30,
    timeout: float | None = None,
    early_stop: Callable[[Sequence[Step]], str | None] | None = None,
    watch: Callable[[Trajectory], None] | None = None,
) -> Trajectory:
    """Runs one episode and records it.

    The episode ends with a final action, when the environment ends it, or after `max_steps`
    actions. If the environment can `locate` an action, the record also contains the element and its
    point (x and y in [0, 1], from the top left). The environment executes, and `early_stop`
    receives, the agent's unmodified action.

    Args:
        policy: The agent.
        environment: The environment in which it acts.
        task: The task.
        id: The trajectory's id.
        agent: The agent's name for the record. None: no name.
        max_steps: The maximum number of actions. 30 is the limit of the web experiments in arXiv
            2404.06474, section 4.2.
        timeout: The time limit of the whole episode, in seconds. None: no limit.
        early_stop: Called with all steps so far after each action; a string ends the episode and is
            recorded as the reason.
        watch: Called with the record so far, at the start and after each action.

    Returns:
        The trajectory. If the environment or the agent's model fails, or the time limit is reached,
        it contains the steps so far, and `error` says why. `metadata["ended_by"]` is agent,
        environment, max_steps, early_stop or error; `metadata["stopped"]` is the reason of an early
        stop; `metadata["unscored"]` is why the agent's model returned no action, as in verdicts
        (`budget`, `timeout`, …); `metadata["date"]` is the start time of the episode, in UTC. The
        metadata also contains what a `ReportingAgent` reports.

    Raises:
        EndpointError: The agent's model cannot be used at all.
        UsageError: The policy or the environment cannot be used for this task.
    """
    metadata: dict[str, Any] = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    record = Trajectory(id=id, task=task, agent=agent, metadata=metadata)
    ended_by, stopped = "max_steps", None
    steps: list[Step] = []
    code: list[str] = []  # of the quotations in the agent's prompts
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            record = replace(record, final=_legible(await environment.reset(task)))
            policy.reset(task)
            for _ in range(max_steps):
                if watch is not None:
                    watch(record)
                assert record.final is not None
                with shared_code(code):
                    step = await policy.act(record.final)
                thought = None if step.thought is None else valid_unicode(step.thought)
                step = Step(_legible(step.observation), _legible(step.action), thought)
                steps.append(step)
                record = replace(record, steps=(*record.steps, step))
                if step.action.is_final:
                    record, ended_by = replace(record, answer=step.action.value), "agent"
                    break
                if isinstance(environment, Locator):
                    step = replace(step, action=_legible(await environment.locate(step.action)))
                    record = replace(record, steps=(*record.steps[:-1], step))
                final, done = await environment.step(steps[-1].action)
                record = replace(record, final=_legible(final))
                if done:
                    ended_by = "environment"
                    break
                if early_stop is not None and (stopped := early_stop(steps)) is not None:
                    ended_by = "early_stop"
                    break
    except EnvironmentFailedError as failure:
        record, ended_by = replace(record, final=None, error=valid_unicode(str(failure))), "error"
    except UnscoredError as failure:
        record, ended_by = (
            replace(record, error=f"{_NO_ACTION} ({failure.code}): {failure}"),
            "error",
        )
        metadata["unscored"] = failure.code
    except TimeoutError:
        if not limit.expired():
            raise
        record, ended_by = (
            replace(record, final=None, error=f"the episode took more than {timeout:g} s"),
            "error",
        )
    if isinstance(policy, ReportingAgent):
        metadata |= policy.report()
    return replace(
        record,
        metadata=metadata
        | {"ended_by": ended_by}
        | ({} if stopped is None else {"stopped": stopped}),
    )


def is_unpaid(error: str | None) -> bool:
    """Returns whether the episode ended because the budget was spent."""
    return error is not None and error.startswith(f"{_NO_ACTION} ({BudgetSpentError.code})")


def _legible(part: _T) -> _T:
    """Returns the record part without unpaired surrogates.

    A page's script can produce them, but neither a record nor a request can contain them.
    """
    texts = {
        f.name: text
        for f in fields(part)
        if f.name != "screenshot" and isinstance(text := getattr(part, f.name), str)
    }
    changed: dict[str, Any] = {
        name: valid for name, text in texts.items() if (valid := valid_unicode(text)) is not text
    }
    return replace(part, **changed) if changed else part
