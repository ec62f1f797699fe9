"""The table of commands, one module per group: configuration, run and presentation."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands import data, improve, judge, papers, play, trust
from prill.cli.commands.base import Command

__all__ = ["COMMANDS", "GROUPS", "Command", "overview"]

# The groups and their commands, in the order of `prill --help`.
GROUPS: Mapping[str, tuple[str, Mapping[str, Command]]] = {
    "judge": ("judge trajectories", judge.COMMANDS),
    "trust": ("measure how far judges can be trusted", trust.COMMANDS),
    "improve": ("improve agents with verdicts", improve.COMMANDS),
    "play": ("record trajectories", play.COMMANDS),
    "data": ("files", data.COMMANDS),
    "papers": ("agents and result tables of the papers", papers.COMMANDS),
}
COMMANDS: Mapping[str, Command] = {
    name: command for _, group in GROUPS.values() for name, command in group.items()
}


def overview() -> str:
    """Returns the help of `prill` itself: one line per command, by group."""
    lines = [
        "usage: prill COMMAND [options]",
        "",
        (
            "Evaluates trajectories of digital agents, and uses the verdicts to make the agents "
            "better."
        ),
    ]
    width = max(map(len, COMMANDS))
    for group, (title, commands) in GROUPS.items():
        lines += ["", f"{group}: {title}"]
        lines += [f"  {name:<{width}}  {command.purpose}" for name, command in commands.items()]
    lines += ["", ("Run prill COMMAND --help for details, and prill --version for the version.")]
    return "\n".join(lines)
