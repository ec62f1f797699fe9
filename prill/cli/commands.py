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

# Of WebArena: what a check of its sites has no use for.
_SHOWN = frozenset(
    {
        *("viewport", "whole_page", "max_tokens", "pause", "downloads", "traces", "schemes", "cookies", "hars"),
        *(f"oracle_model.{name.partition('.')[2]}" for name in _EPISODES if name.startswith("model.")),
    }
)

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
    "refine filtered-bc": Command(
        "improve",
        "filtered behavioural cloning: play, judge, filter, train, play on what was held out; in rounds",
        "prill.runs.filtered_bc:FilteredBCConfig",
        "prill.cli.improving:filtered_bc",
        Words(
            hidden=frozenset({"episodes", "attempts", "evaluation", "arms", "filter", "training"}),
            metavars={"output": "DIR", "seeds": "0,1,2", "gpus": "NxNAME"},
        ),
        (
            "prill refine filtered-bc examples/filtered_bc/miniwob.toml -o runs/bc --seeds 0,1,2",
            "prill refine filtered-bc study.toml -o runs/bc --dry-run --gpus 8xH200",
            "prill refine filtered-bc study.toml -o runs/bc --tables-only",
        ),
        "FILE.toml holds the study: policy, episodes, attempts, evaluation, arms, filter, training (docs/filtered-bc.md).\n"
        "Exit codes: 0 done, 3 an arm had nothing to learn from, 2 bad usage, 4 something is gone, 130 interrupted.",
        dry_run=True,
    ),
    "reflexion": Command(
        "improve",
        "try tasks again while a judge says failure, each time with a lesson from the attempt before",
        "prill.runs.reflexion:ReflexionConfig",
        "prill.cli.improving:reflexion",
        Words(
            ("environment",),
            hidden=_EPISODES
            | _JUDGE
            | {f"policy.{name}" for name in ("attempts", "hint", "lessons", "model", "observation_tokens", "sites")},
            metavars={"environment": "ENVIRONMENT", "output": "DIR", "baseline": "DIR"},
            whole=_WHOLE | {"judge", "second", "policy.attempts", "policy.lessons", "policy.observation_tokens"},
        ),
        (
            "prill reflexion miniwob --tasks click-link --seeds 0-4 --model M --judge vlm --judge.model J -o runs/r",
            "prill reflexion webarena --shop --tasks all --model M --judge oracle --attempts 3 -o runs/shop",
            "prill reflexion retries.toml --keep-best",
        ),
        "ENVIRONMENT --help, --policy NAME --help and --judge NAME --help list the options of each.\n"
        "Exit codes: 0 every task ended in an answer, 3 some without one, 2 bad usage, 4 something is gone, "
        "130 interrupted.",
        dry_run=True,
    ),
    "simulate-retries": Command(
        "improve",
        "what retries come to under a judge that errs: drawn at random, nothing is played",
        "prill.runs.simulation:SimulationConfig",
        "prill.cli.improving:simulation",
        Words(metavars={"output": "DIR", "recorded": "DIR", "verdicts": "FILE"}),
        (
            "prill simulate-retries -o out --false-positives 0.1 --false-negatives 0.3",
            "prill simulate-retries -o out --verdicts verdicts.jsonl --labels labels.jsonl --recorded runs/first",
            "prill simulate-retries -o out --calibration calibration.json --attempts 6",
        ),
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
    "check-sites": Command(
        "play",
        "whether WebArena's own sites are ready: addresses, logins, the reset and an oracle",
        "prill.emulators.webarena.config:WebArenaConfig",
        "prill.cli.playing:check_sites",
        Words(
            short={},
            hidden=_SHOWN,
            metavars={"configs": "FILE", "reset": "COMMAND|URL"},
        ),
        (
            "prill check-sites --reset ./reset.sh",
            "prill check-sites --shop",
            "prill check-sites --tasks 0-99 --oracle verified --json",
        ),
        "Exit codes: 0 everything is there, 3 something is missing, 2 bad usage.",
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
