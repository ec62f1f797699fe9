"""The record type of the command table, and option names that several commands share."""

from __future__ import annotations

from dataclasses import dataclass, field

from prill.cli.layout import FlagLayout


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        purpose: A phrase that describes the command.
        config: The `module:Class` of its configuration.
        show: The `module:function` that takes the configuration and the switches, and returns the
            exit code.
        layout: Exceptions from the derived command line.
        examples: Example commands at the top of its help.
        epilog: The text at the end of its help.
        dry_run: Whether it supports a dry run.
    """

    purpose: str
    config: str
    show: str
    layout: FlagLayout = field(default_factory=FlagLayout)
    examples: tuple[str, ...] = ()
    epilog: str = ""
    dry_run: bool = False


def names(text: str, part: str = "") -> frozenset[str]:
    """Returns the words of a text, each prefixed with `part`."""
    return frozenset(part + name for name in text.split())


# Options that work but are not listed in `--help`, because few users need them.
JUDGE = names(
    "away form image_detail image_format patience probability reasoning_effort towards samples"
)
MORE_OF_MODEL = names(
    "budget_usd concurrency prices repetition_penalty retries temperature top_k top_p "
    "total_timeout",
    "model.",
)
# Options of environments and models that docs/how-to/environments.md documents.
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

# Options whose short name refers to another part's option.
WHOLE = names(
    "environment.max_tokens environment.timeout environment.seed policy.swipe_up policy.device "
    "model.device policy.model.device"
)
