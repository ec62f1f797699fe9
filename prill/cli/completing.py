"""Shell completion for commands, flags, registered names and their options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from prill.cli.commands import COMMANDS, Command
from prill.cli.derive import Derived, Flag, derive
from prill.config.registry import Registry, load_object
from prill.errors import MissingExtraError

SHELLS = ("bash", "zsh", "fish")
# The configuration fields that hold names of parts, by type.
_REGISTRIES = {
    "captioner": "prill.captioner.registry:CAPTIONERS",
    "format": "prill.datasets.formats:FORMATS",
    "judge": "prill.evaluators.registry:JUDGES",
    "policy": "prill.policies.registry:POLICIES",
}


def completion(shell: str) -> str:
    """Returns the completion script for one of SHELLS. Raises MissingExtraError."""
    try:
        import shtab
    except ImportError:
        raise MissingExtraError("shtab") from None
    parser, parsers = argparse.ArgumentParser(prog="prill"), list[argparse.ArgumentParser]()
    groups: dict[str, Any] = {}  # of two-word commands, such as `refine filtered-bc`
    # A command's parser is derived from its configuration; add_parser would create another one.

    def next_parser(**_: Any) -> argparse.ArgumentParser:
        return parsers.pop()

    verbs = parser.add_subparsers(dest="command", parser_class=cast(Any, next_parser))
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group and group not in groups:
            parsers.append(argparse.ArgumentParser(prog=f"prill {group}"))
            groups[group] = verbs.add_parser(group, help=group).add_subparsers(
                parser_class=cast(Any, next_parser)
            )
        parsers.append(_parser(name, command, shtab.FILE))
        groups.get(group, verbs).add_parser(last, help=command.purpose)
    parsers.append(argparse.ArgumentParser(prog="prill completion"))
    verbs.add_parser("completion", help="Shell to print the completion script for.").add_argument(
        "shell", choices=SHELLS
    )
    return str(shtab.complete(parser, shell=shell))


def _parser(name: str, command: Command, files: Any) -> argparse.ArgumentParser:
    """Makes the parser of a command with the options of every part it can name."""
    derived = _derived(name, command, [])
    parser, known = derived.parser, set(derived.parser._option_string_actions)
    for action in derived.parser._actions:
        _describe(action, derived.flags.get(action.dest), files)
    for flag in (flag for flag in derived.flags.values() if len(flag.path) == 1):
        for part in _names(flag):
            other = _derived(name, command, [flag.dotted, part] if flag.names else [part])
            for action in other.parser._actions:
                if new := [option for option in action.option_strings if option not in known]:
                    known |= set(new)
                    kind: Any = {"action": "store_true"} if action.nargs == 0 else {}
                    _describe(
                        parser.add_argument(*new, help=action.help, **kind),
                        other.flags.get(action.dest),
                        files,
                    )
    return parser


def _describe(action: argparse.Action, flag: Flag | None, files: Any) -> None:
    """Sets the completions for an action: names, choices or files."""
    if flag is None or action.nargs == 0:
        return
    if choices := _choices(flag):
        action.choices = choices
    elif flag.part is None and Path in _alternatives(flag.option.type):
        action.complete = files  # type: ignore[attr-defined]
    if not action.option_strings:
        action.nargs = (
            "*"
            if any(get_origin(hint) is Sequence for hint in _alternatives(flag.option.type))
            else "?"
        )


def _derived(name: str, command: Command, arguments: list[str]) -> Derived:
    return derive(
        load_object(command.config),
        arguments,
        command.layout,
        prog=f"prill {name}",
        dry_run=command.dry_run,
    )[0]


def _names(flag: Flag) -> list[str]:
    """Returns the names that a part can have."""
    if flag.part is None or flag.part.kind not in _REGISTRIES:
        return []
    registry: Registry = load_object(_REGISTRIES[flag.part.kind])
    return list(registry.names())


def _choices(flag: Flag) -> list[str]:
    literals = (hint for hint in _alternatives(flag.option.type) if get_origin(hint) is Literal)
    return _names(flag) or [str(choice) for hint in literals for choice in get_args(hint)]


def _alternatives(hint: Any) -> Iterator[Any]:
    """Yields the members of a type, itself first."""
    yield hint
    if get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from _alternatives(inner)
