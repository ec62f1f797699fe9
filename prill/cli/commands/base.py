"""What an entry in the table of commands is, and words that several entries share."""

from __future__ import annotations

from dataclasses import dataclass, field

from prill.cli.words import Words


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        group: Where `prill --help` shows it.
        purpose: What it does, a phrase.
        config: `module:Class` of its configuration.
        show: `module:function` that takes the configuration and the switches, and gives the exit
            code.
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


def names(words: str, part: str = "") -> frozenset[str]:
    """The words of a text, each behind `part`."""
    return frozenset(part + name for name in words.split())


# Options that work and are not listed in `--help`, as few people need them.
JUDGE = names(
    "away form image_detail image_format patience probability reasoning_effort towards samples"
)
MORE_OF_MODEL = names(
    "budget_usd concurrency prices repetition_penalty retries temperature top_k top_p "
    "total_timeout",
    "model.",
)
# Of environments and models: docs/how-to/environments.md has them.
EPISODES = (
    names(
        "after_action answer_timeout before_screenshot boot_timeout downloads hars idle location "
        "login_timeout navigation_timeout prepare reset_timeout schemes settle_gap settle_timeout "
        "timeout boxes limited tree seed adb_port simctl companion",
        "environment.",
    )
    | MORE_OF_MODEL
    | names(
        "api_key_env gguf image_detail image_format max_pixels patience reasoning_effort timeout",
        "model.",
    )
)

# Options about labels, as `prill.io.truth` has them.
LABELS = {"source": "S", "truth": "RULE|NAME"}

# What another part has under the same name, and is meant more often.
WHOLE = names(
    "environment.max_tokens environment.timeout environment.seed policy.swipe_up policy.device "
    "model.device policy.model.device"
)
