"""Tables of TOML and JSON as words of `prill rollout`: a key is the name of a flag, a value is of the type that it reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from prill.cache import DiskCache
from prill.commands.options import positive
from prill.errors import UsageError
from prill.registry import Option, check_option, nearest

# What a value has to be where a flag's text is read by one of these; all others take text.
_TYPES: dict[Any, Any] = {positive: int, float: float, int: int}


def _path(value: Any, place: str) -> Any:
    if not isinstance(value, str):
        raise UsageError(f"{place}: expected a text, got {value!r}")
    return value


# Inner things that a table names by a text.
PARTS = {DiskCache: _path}


def reads(type: Any) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """Says of what reads a flag's text which type stands for it in a table."""

    def note(read: Callable[[str], Any]) -> Callable[[str], Any]:
        _TYPES[read] = type
        return read

    return note


def flags_of(
    parser: argparse.ArgumentParser, titles: Iterable[str], *, without: Iterable[str] = ()
) -> dict[str, argparse.Action]:
    """The flags of these groups by their names, as keys of a table; `without` are arguments that no table gives."""
    titles, left_out = set(titles), {"help", *without}
    flags: dict[str, argparse.Action] = {}
    for action in (action for group in parser._action_groups if group.title in titles for action in group._group_actions):
        negation = "--no-" if isinstance(action, argparse.BooleanOptionalAction) else "\0"
        for flag in action.option_strings:
            if action.dest not in left_out and flag.startswith("--") and not flag.startswith(negation):
                flags[flag[2:].replace("-", "_")] = action
    return flags


def words_of_table(table: Mapping[str, Any], flags: Mapping[str, argparse.Action], place: str) -> Iterator[str]:
    """The table as words for the parser. Raises UsageError that names the key."""
    for key, value in table.items():
        name = str(key).replace("-", "_")
        if name not in flags:
            raise unknown_key(key, flags, place)
        yield from words_of_flag(flags[name], value, f"{place}{key}")


def unknown_key(key: str, names: Iterable[str], place: str) -> UsageError:
    """The error for a key that no flag has."""
    names = sorted(names)
    return UsageError(f"{place}{key}: there is no such option{nearest(key, names)}; there are: {', '.join(names)}")


def words_of_flag(action: argparse.Action, value: Any, place: str) -> Iterator[str]:
    """The flag with that value. Raises UsageError for a value that it does not read."""
    flag = next(word for word in action.option_strings if word.startswith("--"))
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{place}: expected true or false, got {value!r}")
        if value:
            yield flag
        elif f"--no-{flag[2:]}" in action.option_strings:
            yield f"--no-{flag[2:]}"
        return
    several = isinstance(action, argparse._AppendAction)
    for one in value if several and isinstance(value, list) else [value]:
        text = _text(action, one, place)
        try:
            read = action.type(text) if callable(action.type) else text
        except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
            raise UsageError(f"{place}: {error}, got {value!r}") from None
        if action.choices is not None and read not in action.choices:
            names = list(map(str, action.choices))
            raise UsageError(f"{place}: choose from {', '.join(names)}, got {value!r}{nearest(text, names)}")
        yield f"{flag}={text}"


def _text(action: argparse.Action, value: Any, place: str) -> str:
    """The value as the flag's text."""
    if isinstance(option := getattr(action, "option", None), Option):
        check_option(value, option, place, PARTS)
        return value if isinstance(value, str) else json.dumps(value)
    if (type := _TYPES.get(action.type)) is not None:
        try:
            return str(msgspec.convert(value, type))
        except msgspec.ValidationError as error:
            raise UsageError(f"{place}: {error}, got {value!r}") from None
    # A flag that takes several words with commas between says so where it shows what it takes.
    if "," in str(action.metavar) and (_is_word(value) or (isinstance(value, list) and value and all(map(_is_word, value)))):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if not isinstance(value, str):
        raise UsageError(f"{place}: expected a text, got {value!r}")
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
