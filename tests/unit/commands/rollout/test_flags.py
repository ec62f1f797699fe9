"""The short flags of `prill rollout` mean the same part with every policy, environment and
model.
"""

from __future__ import annotations

import pytest

from prill.cli import main
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.errors import UsageError
from prill.policies.registry import POLICIES
from prill.runs.rollout import RolloutConfig
from tests.support.commands.as_config import config

ENVIRONMENTS = ("miniwob", "web", "webarena", "airline", "mind2web", "android", "ios")
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
    "policy": {"max_tokens", "generation"},
    "model": {"base_url", "timeout", "retries", "patience"},
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_short_flags_mean_one_part(environment: str) -> None:
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
                        flag = f"--{name.replace('_', '-')}"
                        (meant,) = (one.path for one in derived.flags.values() if flag in one.names)
                        assert meant == (part, name), (argv, flag, meant)


def test_what_the_policy_does_not_have_is_not_the_environments() -> None:
    """A cut of the page's text must not be set by a limit of replies that was meant for the
    policy.
    """
    with pytest.raises(UsageError, match="--max-tokens: policy 'replay' has no such option"):
        config(
            "web",
            "--goal",
            "x",
            "--policy",
            "replay",
            "--replay",
            "a.jsonl",
            "--max-tokens",
            "9",
            "-o",
            "out",
        )


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_help_of_an_environment_is_a_page(
    environment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["rollout", environment, "--help"])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) < 60
    assert sum(line.strip().startswith("prill rollout") for line in shown[:8]) == 3
