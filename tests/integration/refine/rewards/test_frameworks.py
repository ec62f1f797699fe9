"""Rewards inside other people's frameworks, each the real package in an environment of its own
(`make test-frameworks`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from prill.testing import MockServer
from tests.integration.service.test_process import serving
from tests.support.paths import ROOT, SUPPORT
from tests.support.refine.rewards.table import POLICIES, documented

ENVIRONMENTS = os.environ.get("PRILL_FRAMEWORKS", "")
# By the name of the row in docs/how-to/rewards.md; the folder of the environment is that in small
# letters.
FRAMEWORKS = ("verl", "verifiers", "Inspect", "OpenEnv", "ART")
QUIET = {
    "PYTHONPATH": str(ROOT),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ENVIRONMENTS, reason="no environments with frameworks: make test-frameworks"
    ),
]
See = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def well() -> Iterator[MockServer]:
    with MockServer() as server:
        yield server


def started(name: str, places: str) -> subprocess.CompletedProcess[str]:
    """The framework's own Python, at work."""
    folder = Path(ENVIRONMENTS, name.lower())
    if not (folder / ".installed").exists():
        pytest.skip(f"{name} is not installed; see {folder}/install.log")
    command = [
        str(folder / "bin/python"),
        str(SUPPORT / "refine/rewards/frameworks.py"),
        name,
        places,
    ]
    environment = {key: value for key, value in os.environ.items() if key != "NO_SUCH_KEY"}
    return subprocess.run(
        command, env={**environment, **QUIET}, capture_output=True, text=True, check=False
    )


def said(done: subprocess.CompletedProcess[str]) -> Any:
    """What it printed last."""
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def see(well: MockServer) -> Iterator[See]:
    """What a framework makes of the cases and of what its own test asks; each framework is started
    once.
    """
    with ExitStack() as servers:
        late = servers.enter_context(MockServer(stall=1.0, stall_seconds=60.0)).base_url
        garbage = servers.enter_context(MockServer(garbage=1.0)).base_url
        places = json.dumps({"well": well.base_url, "late": late, "garbage": garbage})
        run = cache(lambda name: started(name, places))

        yield lambda name: said(run(name))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_trainers_see_what_is_documented(name: str, policy: str, see: See) -> None:
    assert see(name)[policy] == documented(policy)[name]


def test_verl_gets_the_same_numbers_always(see: See) -> None:
    more = see("verl")["more"]
    scored, valued = more["scored"], more["valued"]
    assert more["example"] == 1.0, "examples/verl_reward.py, by its path"
    assert scored["reward_score"] == 1.0 and valued["reward_score"] == 0.25
    assert scored["reward_extra_info"].keys() == valued["reward_extra_info"].keys()
    assert (
        scored["reward_extra_info"]["unscored"] == 0.0
        and valued["reward_extra_info"]["unscored"] == 1.0
    )


def test_rate_limited_verl_makes_errors_zero(see: See) -> None:
    """Why the document says to use another manager, or `on_unscored="value"`."""
    more = see("verl")["more"]
    assert (
        more["limited"]["reward_score"] == 0.0
        and "no_evidence" in more["limited"]["reward_extra_info"]["error"]
    )
    assert more["limited and valued"]["reward_score"] == 0.25
    assert more["limited and valued"]["reward_extra_info"]["unscored"] == 1.0


def test_verifiers_judge_sees_screenshots(see: See, well: MockServer) -> None:
    more = see("verifiers")["more"]
    assert more["reward"] == 2.0, "the judge's 1 by its weight"
    assert more["call"]["success"] == 1.0 and more["tokens"] > 0
    assert well.stats().images > 0


def test_inspect_leaves_unscored_out(see: See) -> None:
    more = see("Inspect")["more"]
    assert (more["reason"], more["counted"]) == ("no_evidence", [0, 1])


def test_inspect_judges_conversations(see: See) -> None:
    assert see("Inspect")["more"]["conversation"] == 1.0


def test_openenv_pays_the_last_step(see: See) -> None:
    assert see("OpenEnv")["more"]["steps"] == [0.0, 1.0]


def test_openenv_keeps_no_earlier_reward(see: See) -> None:
    assert see("OpenEnv")["more"]["later"] == ["raises NoEvidenceError", "raises UsageError"]


def test_art_drops_what_is_unscored(see: See) -> None:
    assert see("ART")["more"] == {"rewards": [0.0, 1.0], "unscored": 1}


@pytest.fixture(scope="module")
def services(well: MockServer) -> Iterator[str]:
    """The addresses of the real service, as JSON: of a judge that answers, and of one that is
    handed garbage.
    """
    judge = [
        "--judge",
        "modular",
        "--judge.captioner",
        "text",
        "--model",
        "mock",
        "--model.retries",
        "0",
        "--model.base-url",
    ]
    with (
        MockServer(garbage=1.0) as bad,
        serving(*judge, well.base_url) as (_, url),
        serving(*judge, bad.base_url) as (_, broken),
    ):
        yield json.dumps({"well": url, "garbage": broken})


def test_openrlhf_fetches_its_rewards(services: str) -> None:
    """By its own client: what is judged, what cannot be judged (422), what the judge failed at
    (502).
    """
    found = said(started("OpenRLHF", services))
    assert (found["success"]["reward"], found["failure"]["reward"]) == ([1.0], [0.0])
    assert found["success"]["scores"] > found["failure"]["scores"]
    assert found["success"]["logs"] == found["failure"]["logs"] != []
    assert found["unscored"]["reward"] is found["garbage reply"]["reward"] is None, "never a number"


def test_slimes_client_fetches_its_rewards(services: str) -> None:
    """By that of miles, a fork that asks as slime does, but once: what has no verdict raises, and
    leaves the sample without.
    """
    found = said(started("slime", services))
    assert (found["success"], found["failure"], found["table"]) == (1.0, 0.0, 1.0)
    assert (found["unscored"], found["garbage reply"]) == (["422", None], ["502", None])


def test_nemo_gym_collects_what_is_judged(services: str) -> None:
    """Its agent and its rollouts, by the resources server of the example: no failure is among the
    rewards or the figures.
    """
    found = said(started("NeMo-Gym", services))
    failed = {
        "well unscored": "no_evidence",
        "garbage success": "parse",
        "unreadable": '{"error":{"code":"input"',
    }
    for run, attempts in ((found["first"], 1), (found["resumed"], 2)):
        assert run["kept"] == {"well success": 1.0, "well failure": 0.0, "response": 1.0}
        assert sorted(case for case, _, _ in run["failed"]) == sorted([*failed] * attempts), (
            "tried again, and nothing else"
        )
        assert all(
            kind == "judge_failed" and words.startswith(failed[case])
            for case, kind, words in run["failed"]
        )
        assert run["metrics"] == {"well": pytest.approx(2 / 3), "garbage": None}


def test_swift_asks_on_a_new_loop_each_time(well: MockServer) -> None:
    assert (
        said(started("ms-swift", json.dumps({"well": well.base_url})))
        == [["1.0", "0.0", "nan"]] * 2
    )
