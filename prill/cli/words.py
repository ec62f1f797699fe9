"""Exceptions from the derived command line, and display settings; cheap to import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_METAVARS = {
    "api_key_env": "VAR",
    "base_url": "URL",
    "cache": "DIR",
    "calibration": "FILE",
    "captions": "FILE",
    "gguf": "FILE",
    "host": "ADDRESS",
    "labels": "FILE",
    "media_root": "DIR",
    "prices": "FILE",
    "prompt": "FILE.md",
    "rubrics": "FILE",
    "shard": "I/N",
    "token_env": "VAR",
    "token_file": "FILE",
    "trajectories": "TRAJ",
    "transcripts": "DIR",
}


@dataclass(frozen=True)
class Words:
    """Exceptions from the derived command line of a configuration.

    Attributes:
        positional: Fields that are given without a flag, in order; one of them may take several
            words.
        short: One-letter flags by field.
        hidden: Paths (dotted) that the help leaves out; they work all the same.
        renamed: Other flags for a path, such as `--attempts` for `plays`.
        metavars: What stands for the value in the help, by path.
        whole: Paths (dotted), or the first names of paths, whose end alone is no flag, so that it
            means another one.
    """

    positional: tuple[str, ...] = ()
    short: Mapping[str, str] = field(default_factory=lambda: {"output": "-o"})
    hidden: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    metavars: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()

    def metavar(self, path: Sequence[str]) -> str | None:
        """The placeholder of the value in the help; None: by its type."""
        return (
            self.metavars.get(".".join(path))
            or self.metavars.get(path[-1])
            or _METAVARS.get(path[-1])
        )


@dataclass(frozen=True)
class Switches:
    """Display options of a command: as JSON, or only as a plan."""

    json: bool = False
    dry_run: bool = False
