"""The flags of `prill rollout` mean the same part with every policy, environment and model."""

from __future__ import annotations

import pytest

from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.episodes import RolloutConfig
from prill.errors import UsageError
from prill.policies.registry import POLICIES
from tests.support.commands.as_config import config

ENVIRONMENTS = (
    "miniwob",
    "web",
    "webarena",
    "webarena-infinity",
    "airline",
    "browsergym",
    "mind2web",
    "android",
    "ios",
)
OF = {
    "environment": {
        *(
            "tasks",
            "goal",
            "start_url",
            "settle",
            "whole_page",
            "viewport",
            "pause",
            "configs",
            "shop",
            "oracle",
            "reset",
        ),
        *("recordings", "device", "avd", "snapshot", "backend", "simulator", "restore", "swipe_up"),
    },
    "policy": {"max_tokens", "generation", "swipe_up", "device"},
    "model": {"base_url", "timeout", "retries"},
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_only_the_environments_flags_stand_alone(environment: str) -> None:
    for policy in POLICIES.entries:
        for model in ("m", "local:dir"):
            argv = [environment, "--policy", policy, "--model", model]
            derived, _ = derive(
                RolloutConfig, argv, COMMANDS["rollout"].layout, prog="prill rollout"
            )
            for part, names in OF.items():
                paths = {flag.path for flag in derived.flags.values()}
                for name in names:
                    if (part, name) in paths:
                        prefix = "" if part == "environment" else f"{part}."
                        flag = f"--{prefix}{name.replace('_', '-')}"
                        (meant,) = (one.path for one in derived.flags.values() if flag in one.names)
                        assert meant == (part, name), (argv, flag, meant)


def test_what_the_policy_does_not_have_is_not_the_environments() -> None:
    """A cut of the page's text must not be set by a limit of replies that was meant for the
    policy.
    """
    with pytest.raises(UsageError, match="write --environment.max-tokens$"):
        config(
            "web",
            "--goal",
            "x",
            "--policy",
            "replay",
            "--policy.trajectories",
            "a.jsonl",
            "--max-tokens",
            "9",
            "-o",
            "out",
        )
