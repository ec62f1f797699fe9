"""The commands of prill: for each one its group, its configuration, who carries it out and shows the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prill.cli.derive import Words


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        group: Where `prill --help` shows it.
        purpose: What it does, a phrase.
        config: `module:Class` of its configuration.
        show: `module:function` that takes the configuration and the switches, and gives the exit code.
        words: How its command line differs from the rule.
        examples: Commands on top of its help.
        epilog: What its help ends with.
        dry_run: Whether it can tell what it would do.
    """

    group: str
    purpose: str
    config: str
    show: str
    words: Words = field(default_factory=Words)
    examples: tuple[str, ...] = ()
    epilog: str = ""
    dry_run: bool = False


GROUPS: Mapping[str, str] = {
    "judge": "judge trajectories",
    "trust": "how far judges can be trusted",
    "improve": "make agents better by verdicts",
    "play": "record trajectories",
    "data": "files",
    "papers": "agents and tables of the papers",
}
_JUDGE = frozenset(
    {"away", "form", "image_detail", "image_format", "patience", "probability", "reasoning_effort", "towards", "samples"}
)

# Of environments and models: docs/environments.md has them.
_EPISODES = frozenset(
    f"environment.{name}"
    for name in (
        *("after_action", "answer_timeout", "before_screenshot", "boot_timeout", "downloads", "hars", "idle", "location"),
        *("login_timeout", "navigation_timeout", "prepare", "reset_timeout", "schemes", "settle_gap", "settle_timeout"),
        *("timeout", "boxes", "limited", "tree", "seed", "adb_port", "simctl", "companion"),
    )
) | frozenset(
    f"model.{name}"
    for name in (
        *("api_key_env", "concurrency", "gguf", "image_detail", "image_format", "max_pixels", "patience", "prices"),
        *("reasoning_effort", "repetition_penalty", "retries", "temperature", "timeout", "top_k", "top_p", "total_timeout"),
        "budget_usd",
    )
)
# What a policy or a model has under the same name, and is meant more often.
_WHOLE = frozenset(f"environment.{name}" for name in ("max_tokens", "timeout", "seed", "options"))

COMMANDS: Mapping[str, Command] = {
    "score": Command(
        "judge",
        "judge trajectories and write verdicts",
        "prill.runs.score:ScoreConfig",
        "prill.cli.judging:score",
        Words(("trajectories",), hidden=_JUDGE, metavars={"trajectories": "TRAJ", "output": "FILE"}),
        (
            "prill score t.jsonl -o v.jsonl --judge vlm --model gpt-4o --budget-usd 5",
            "prill score t.jsonl -o v.jsonl --judge modular --captioner text --model M --base-url http://localhost:8000/v1",
            "prill score score.toml --judge.frames 4",
        ),
        "Exit codes: 0 all scored, 3 some unscored, 2 nothing could be read or bad usage, 4 endpoint gone, 130 interrupted.",
        dry_run=True,
    ),
    "rollout": Command(
        "play",
        "record trajectories: a policy in an environment",
        "prill.runs.rollout:RolloutConfig",
        "prill.cli.playing:rollout",
        Words(
            ("environment",),
            hidden=_EPISODES | {"first_play"},
            metavars={"environment": "ENVIRONMENT", "output": "DIR", "plan": "TOML", "behaviour": "A,B"},
            whole=_WHOLE,
            renamed={"policy.trajectories": "--replay"},
        ),
        (
            "prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 -o runs/a",
            "prill rollout webarena --shop --tasks all --policy react --model M --budget-usd 2 -o runs/b",
            "prill rollout mine.py:Desk --goal 'Find the price' --policy mine.py:Agent -o runs/c",
        ),
        "ENVIRONMENT --help and --policy NAME --help list the options of an environment and of a policy: "
        + "miniwob, webarena, airline, web, browsergym, mind2web, android, ios.\n"
        + "Exit codes: 0 all ended as they should, 3 some broke off or have no label, 2 bad usage, 4 something is gone, "
        + "130 interrupted.",
        dry_run=True,
    ),
    "devices": Command(
        "play",
        "which browsers, phones and simulators can be used here, and how to get the others",
        "prill.runs.devices:DevicesConfig",
        "prill.cli.playing:devices",
        Words(("platforms",), metavars={"platforms": "PLATFORM", "appium_url": "URL"}),
        ("prill devices", "prill devices android --appium-url http://10.0.0.2:4723", "prill devices ios --json"),
    ),
}
