"""Commands that record trajectories."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands.base import EPISODES, WHOLE, Command, names
from prill.cli.layout import FlagLayout

# WebArena options that do not affect a check of its sites.
_PLAYED = names(
    "viewport whole_page max_tokens pause downloads traces schemes cookies hars", "environment."
)

COMMANDS: Mapping[str, Command] = {
    "rollout": Command(
        "run a policy in an environment, and record trajectories",
        "prill.episodes:RolloutConfig",
        "prill.episodes:rollout",
        FlagLayout(
            ("environment",),
            hidden=EPISODES,
            flat=("environment",),
            whole=WHOLE,
        ),
        (
            "prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 -o runs/a",
            "prill rollout webarena --shop --tasks all --policy react --model M --budget-usd 2 -o "
            "runs/b",
            "prill rollout mine.py:Shop --goal 'Find the price' --policy mine.py:Agent -o runs/c",
        ),
        "ENVIRONMENT --help and --policy NAME --help list the options of an environment "
        "and of a policy: miniwob, webarena, webarena-infinity, airline, web, browsergym, "
        "mind2web, android, ios.\n"
        "Exit codes: 0 all episodes completed, 3 some ended with an error or have no label, 2 bad "
        "usage, 4 a required service is down, 130 interrupted.",
        plan="plan_rollout",
        unit="episode",
    ),
    "devices": Command(
        "list the browsers, phones and simulators found here, and check WebArena's sites",
        "prill.episodes.devices:DevicesConfig",
        "prill.episodes.devices:devices",
        FlagLayout(
            ("platforms",),
            hidden=_PLAYED,
            flat=("environment",),
            whole=WHOLE | {"environment.appium_url"},
        ),
        (
            "prill devices",
            "prill devices android --appium-url http://10.0.0.2:4723",
            "prill devices --environment webarena --reset ./reset.sh",
        ),
        "Exit codes: 0 done, 3 a site of WebArena is not ready, 2 bad usage.",
        unit="check",
    ),
}
