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
        run: The `module:function` of its run.
        layout: Exceptions from the derived command line.
        examples: Example commands at the top of its help.
        epilog: The text at the end of its help.
        plan: The function beside its run that plans it, for a dry run.
        unit: What its progress bar counts.
        stops: Whether the first Ctrl-C lets the calls in flight finish.
        quiet: Whether it silences the libraries that it uses.
    """

    purpose: str
    config: str
    run: str
    layout: FlagLayout = field(default_factory=FlagLayout)
    examples: tuple[str, ...] = ()
    epilog: str = ""
    plan: str = ""
    unit: str = "it"
    stops: bool = False
    quiet: bool = False


def names(text: str, part: str = "") -> frozenset[str]:
    """Returns the words of a text, each prefixed with `part`."""
    return frozenset(part + name for name in text.split())


# Options that work but are not listed in `--help`, because few users need them.
JUDGE = names("away form image_detail image_format probability reasoning_effort towards samples")
MORE_OF_MODEL = names(
    "budget_usd concurrency prices repetition_penalty retries temperature top_k top_p",
    "model.",
)
# Options of environments and models that docs/how-to/environments.md documents.
EPISODES = (
    names(
        "after_action answer_timeout boot_timeout failures hars idle location "
        "prepare reset_timeout schemes settle_gap settle_timeout webarena_text "
        "timeout boxes limited tree seed adb_port simctl companion",
        "environment.",
    )
    | MORE_OF_MODEL
    | names(
        "api_key_env gguf image_detail image_format max_pixels reasoning_effort timeout",
        "model.",
    )
)

# Options of an environment that keep its name, because those of its model or policy are better
# known by theirs.
WHOLE = names("max_tokens timeout seed", "environment.")
