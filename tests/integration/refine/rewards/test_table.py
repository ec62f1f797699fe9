"""What each trainer sees in each case is what docs/how-to/rewards.md says."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from prill.refine.rewards import Reward, RewardSpec, TRLReward, judge_episodes, to_json
from prill.testing import MockServer
from prill.types import Observation, Trajectory
from tests.integration.refine.rewards.test_frameworks import FRAMEWORKS
from tests.support.refine.rewards.table import (
    CASES,
    COMMON,
    POLICIES,
    Adapter,
    documented,
    in_loop,
    made,
    seen,
    trajectory_for,
)


def trl(reward: Reward, trajectory: Trajectory) -> object:
    call = TRLReward(reward)
    return in_loop(
        call,
        prompts=["p"],
        completions=["c"],
        completion_ids=[[1]],
        trajectory=[to_json(trajectory)],
    )[0]


def swift(reward: Reward, trajectory: Trajectory) -> object:
    return in_loop(TRLReward(reward), ["c"], trajectory=[to_json(trajectory)], solution=["s"])[0]


def gym(reward: Reward, trajectory: Trajectory) -> object:
    """The last reward, and the judge's, of an environment with a return of 0.25 of its own."""
    gymnasium = pytest.importorskip(
        "gymnasium", reason="gymnasium is not installed: pip install gymnasium"
    )

    class Replay(gymnasium.Env):  # type: ignore[misc]
        def reset(self, **options: object) -> tuple[object, dict[str, object]]:
            return Observation(), {"goal": trajectory.task.goal}

        def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
            return trajectory.final, 0.25, True, False, {}

    env = judge_episodes(Replay(), reward)
    env.reset()
    _, last, _, _, info = env.step("look")
    return last, info["judge"]["reward"]


def served(reward: Reward, path: str, body: object) -> Any:
    """The body of the service's answer, or its status where it is none of success."""
    for package in ("starlette", "prometheus_client", "httpx"):
        pytest.importorskip(package)
    import httpx

    from prill.refine.rewards.service import make_service

    async def ask() -> Any:
        transport = httpx.ASGITransport(make_service(reward).app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post(path, json=body, timeout=60)
            return answer.json() if answer.is_success else Said(f"status {answer.status_code}")

    return in_loop(ask)


class Said(str):
    """Words as they stand in the table."""

    __slots__ = ()
    __repr__ = str.__str__


def openrlhf(reward: Reward, trajectory: Trajectory) -> object:
    answer = served(
        reward, "/get_reward", {"query": ["pr"], "prompts": ["p"], "labels": [to_json(trajectory)]}
    )
    return answer if isinstance(answer, Said) else answer["rewards"][0]


def slime(reward: Reward, trajectory: Trajectory) -> object:
    return served(reward, "/rm", {"prompt": "p", "response": "r", "label": to_json(trajectory)})


def nemo_gym(reward: Reward, trajectory: Trajectory) -> object:
    row = {
        "responses_create_params": {},
        "response": {"output": []},
        "trajectory": to_json(trajectory),
    }
    answer = served(reward, "/verify", row)
    return Said(answer["_ng_failure_class"]) if "_ng_failure_class" in answer else answer["reward"]


# By the name of the row. An adapter that needs a package skips where it is missing.
ADAPTERS: dict[str, Adapter] = {
    "OpenRLHF": openrlhf,
    "slime": slime,
    "NeMo-Gym": nemo_gym,
    "TRL": trl,
    "ms-swift": swift,
    "Gymnasium": gym,
}


@pytest.fixture(scope="module")
def rewards() -> Iterator[dict[str, Reward]]:
    """A reward for each case, by an endpoint that brings it about."""
    with ExitStack() as servers:
        well = servers.enter_context(MockServer()).base_url
        late = servers.enter_context(MockServer(stall=1.0, stall_seconds=60.0)).base_url
        garbage = servers.enter_context(MockServer(garbage=1.0)).base_url
        places = {
            case: {"timeout": late, "garbage reply": garbage}.get(case, well) for case in CASES
        }
        yield {
            case: made(COMMON, base_url=place, timeout=0.5 if case == "timeout" else 60.0)
            for case, place in places.items()
        }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ADAPTERS)
def test_trainers_see_what_is_documented(
    name: str, policy: str, case: str, rewards: dict[str, Reward]
) -> None:
    reward = Reward(rewards[case].judge, RewardSpec(**POLICIES[policy]))
    assert seen(ADAPTERS[name], reward, trajectory_for(case)) == documented(policy)[name][case]


@pytest.mark.parametrize("name", [*ADAPTERS, *FRAMEWORKS])
@pytest.mark.parametrize("policy", ["abstain", "raise"])
def test_no_failure_of_a_judge_becomes_a_number(name: str, policy: str) -> None:
    """What is documented is what trainers see, by the tests of both kinds of adapters."""
    for case in CASES[2:]:
        told = documented(policy)[name][case]
        assert told == "nan" or not re.search(r"(?<!status )\b\d", told), (case, told)


def test_every_row_of_the_table_has_a_test() -> None:
    for policy in POLICIES:
        assert set(documented(policy)) == {*ADAPTERS, *FRAMEWORKS}
