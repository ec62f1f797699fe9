"""Exceptions from the derived command line, display settings and messages; cheap to import."""

from __future__ import annotations

import sys
from dataclasses import dataclass


def say(text: object) -> None:
    """Prints a text on stderr."""
    from prill.text import printable

    print("\n".join(map(printable, str(text).split("\n"))), file=sys.stderr)


@dataclass(frozen=True)
class FlagLayout:
    """Exceptions from the derived command line of a configuration.

    Attributes:
        positional: Fields that are positional arguments, in order; one of them may take several.
        hidden: Dotted paths, or last names of paths, that the help omits; their flags still work.
        flat: Parts whose options are flags without the part's name.
        whole: Options of flat parts that keep the name of the part, as dotted paths.
    """

    positional: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    flat: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Switches:
    """Display options of a command: JSON output, or a dry run."""

    json: bool = False
    dry_run: bool = False
