"""Commands that record trajectories."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import EPISODES, WHOLE, Command
from prill.cli.layout import FlagLayout

# WebArena options that do not affect a check of its sites.
_SHOWN = frozenset(
    {
        *(
            "viewport",
            "whole_page",
            "max_tokens",
            "pause",
            "downloads",
            "traces",
            "schemes",
            "cookies",
            "hars",
        ),
        *(
            f"oracle_model.{name.partition('.')[2]}"
            for name in EPISODES
            if name.startswith("model.")
        ),
    }
)

COMMANDS: Mapping[str, Command] = {
    "rollout": Command(
        "run a policy in an environment, and record trajectories",
        "prill.runs.rollout:RolloutConfig",
        "prill.cli.playing:rollout",
        FlagLayout(
            ("environment",),
            hidden=EPISODES | {"first_play"},
            metavars={
                "environment": "ENVIRONMENT",
                "output": "DIR",
                "plan": "TOML",
                "behaviour": "A,B",
            },
            whole=WHOLE,
            renamed={"policy.trajectories": "--replay"},
        ),
        (
            "prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 -o runs/a",
            "prill rollout webarena --shop --tasks all --policy react --model M --budget-usd 2 -o "
            "runs/b",
            "prill rollout mine.py:Shop --goal 'Find the price' --policy mine.py:Agent -o runs/c",
        ),
        "ENVIRONMENT --help and --policy NAME --help list the options of an environment "
        "and of a policy: miniwob, webarena, airline, web, browsergym, mind2web, android, "
        "ios.\n"
        "Exit codes: 0 all episodes completed, 3 some ended with an error or have no label, 2 bad "
        "usage, 4 a required service is down, 130 interrupted.",
        dry_run=True,
    ),
    "devices": Command(
        "list the browsers, phones and simulators found here, and how to set up the others",
        "prill.runs.devices:DevicesConfig",
        "prill.cli.playing:devices",
        FlagLayout(("platforms",), metavars={"platforms": "PLATFORM"}),
        (
            "prill devices",
            "prill devices android --appium-url http://10.0.0.2:4723",
            "prill devices ios --json",
        ),
    ),
    "check-sites": Command(
        "check that WebArena's own sites are ready: addresses, logins, the reset and an oracle",
        "prill.emulators.webarena.config:WebArenaConfig",
        "prill.cli.playing:check_sites",
        FlagLayout(short={}, hidden=_SHOWN, metavars={"reset": "COMMAND|URL"}),
        (
            "prill check-sites --reset ./reset.sh",
            "prill check-sites --shop",
            "prill check-sites --tasks 0-99 --oracle verified --json",
        ),
        "Exit codes: 0 everything is ready, 3 something is missing, 2 bad usage.",
    ),
}
