"""The table of commands, one module per group: configuration, run and presentation."""

from __future__ import annotations

from collections.abc import Mapping

from prill.cli.commands import data, improve, judge, papers, play, trust
from prill.cli.commands.base import Command

__all__ = ["COMMANDS", "GROUPS", "Command", "overview"]

GROUPS: Mapping[str, str] = {
    "judge": "judge trajectories",
    "trust": "measure how far judges can be trusted",
    "improve": "improve agents with verdicts",
    "play": "record trajectories",
    "data": "files",
    "papers": "agents and result tables of the papers",
}
# In the order of `prill --help`.
COMMANDS: Mapping[str, Command] = {
    name: command
    for group in (judge, trust, improve, play, data, papers)
    for name, command in group.COMMANDS.items()
}


def overview() -> str:
    """Returns the help of `prill` itself: one line per command, by group."""
    found = {name: (command.group, command.purpose) for name, command in COMMANDS.items()}
    lines = [
        "usage: prill COMMAND [options]",
        "",
        (
            "Evaluates trajectories of digital agents, and uses the verdicts to make the agents "
            "better."
        ),
    ]
    width = max(map(len, found))
    for group, title in GROUPS.items():
        names = [name for name in found if found[name][0] == group]
        lines += (
            ["", f"{group}: {title}", *(f"  {name:<{width}}  {found[name][1]}" for name in names)]
            if names
            else []
        )
    lines += [
        "",
        (
            "Run prill COMMAND --help for details, prill --version for the version, and "
            "prill completion SHELL for shell completion."
        ),
    ]
    return "\n".join(lines)
