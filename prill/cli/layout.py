"""Exceptions from the derived command line, display settings and messages; cheap to import."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

EXIT_ALL, EXIT_SOME, EXIT_INTERRUPTED = 0, 3, 130


def say(text: object) -> None:
    """Prints a text on stderr."""
    print(text, file=sys.stderr)


# Placeholders for the values of options, with the names of these options.
_PLACEHOLDERS = {
    "ADDRESS": "host",
    "DIR": "baseline cache folder media_root recorded transcripts",
    "FILE": (
        "against agreeing calibration canaries canary_labels captions compare configs "
        "disagreements files gguf junit learning_curve markdown observations out_of_fold "
        "output plot prices reference rubrics scores student suspects teacher_verdicts "
        "token_file"
    ),
    "FILE.md": "prompt",
    "I/N": "shard",
    "ID": "id",
    "KEY,…": "by",
    "LABELS": "earlier labels",
    "N": "attempts clusters",
    "NAME": "annotator corrections",
    "NxNAME": "gpus",
    "PAGE": "report",
    "RULE|NAME": "truth",
    "S": "source",
    "TRAJ": "trajectories",
    "URL": "appium_url base_url",
    "VAR": "api_key_env token_env",
    "VERDICTS": "a a_again b b_again verdicts with_verdicts",
}
_METAVARS = {name: text for text, names in _PLACEHOLDERS.items() for name in names.split()}


@dataclass(frozen=True)
class FlagLayout:
    """Exceptions from the derived command line of a configuration.

    Attributes:
        positional: Fields that are positional arguments, in order; one of them may take several.
        short: One-letter flags by field.
        hidden: Dotted paths that the help omits; their flags still work.
        renamed: Alternative flags for a path, such as `--attempts` for `plays`.
        metavars: Placeholders for values in the help, by path.
        whole: Dotted paths, or first names of paths, whose last name alone is not a flag.
    """

    positional: tuple[str, ...] = ()
    short: Mapping[str, str] = field(default_factory=lambda: {"output": "-o"})
    hidden: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    metavars: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()

    def metavar(self, path: Sequence[str]) -> str | None:
        """Returns the placeholder for the value in the help; None: derived from its type."""
        return (
            self.metavars.get(".".join(path))
            or self.metavars.get(path[-1])
            or _METAVARS.get(path[-1])
        )


@dataclass(frozen=True)
class Switches:
    """Display options of a command: JSON output, or a dry run."""

    json: bool = False
    dry_run: bool = False
