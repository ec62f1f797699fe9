"""Turns decoding errors into messages that say where, what, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from prill.io.kinds import parse_object
from prill.types import LabelRecord, Trajectory, Verdict

_ENUM = re.compile(r"Invalid enum value .* - at `(.*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `(.*)`)?$")


def line_fault(data: bytes, error: Exception, type_: type) -> str:
    """Explains why a line is not a record of the type, and what to do.

    `error` is msgspec's exception.
    """
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return f"not valid JSON ({text}){_json_remedy(data, error)}"
    if match := _ENUM.match(text):
        return text + _choices_at(match[1], data)
    if match := _MISSING.match(text):
        place = (match[2] or "$").removeprefix("$").removeprefix(".")
        suggestion = _similar(
            match[1],
            [
                path
                for path in unknown_keys(parse_object(data), type_)
                if path.rpartition(".")[0] == place
            ],
        )
        return text.replace("Object missing required field", "missing field") + suggestion
    return text


def take_unknown(record: object, type_: type, extras: dict[str, Any], at: str = "") -> None:
    """Moves a decoded record's unknown keys to `extras`, by path such as `steps[0].action.raw`."""
    if not isinstance(record, dict):
        return
    known = _fields(type_)
    if not record.keys() <= known.keys():
        for key in [key for key in record if key not in known]:
            extras[f"{at}{key}"] = record.pop(key)
    for key, part in _parts(type_):
        value = record.get(key)
        if isinstance(value, list):
            for i, one in enumerate(value):
                take_unknown(one, part, extras, f"{at}{key}[{i}].")
        elif value is not None:
            take_unknown(value, part, extras, f"{at}{key}.")


def unknown_keys(record: object, type_: type) -> list[str]:
    """Returns the paths of a record's unknown keys."""
    extras: dict[str, Any] = {}
    take_unknown(record, type_, extras)
    return list(extras)


def duplicate(id: str, first: str) -> str:
    """Returns the error message for an id that was used before."""
    return f"duplicate id {id!r}, first used at {first}; give each trajectory an id of its own"


def guess(key: str) -> str:
    """Returns ` (did you mean 'x'?)` if an unknown key resembles a known one, else an empty text.

    For a path, the last key is compared.
    """
    from prill.config.registry import nearest

    return nearest(key.rpartition(".")[2].lower(), _all_keys())


def _similar(field: str, paths: list[str]) -> str:
    from prill.config.registry import nearest

    unknown = {path.rpartition(".")[2] for path in paths}
    return next(
        (
            f"; is it `{key}`, a key that is unknown?"
            for key in unknown
            if nearest(key.lower(), [field])
        ),
        "",
    )


def _json_remedy(data: bytes, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
        return "; save the file as UTF-8"
    if data.startswith(b"["):
        return "; write one object a line instead of an array: jq -c '.[]' FILE"
    if re.match(rb"\{\s*'", data):
        return "; this is Python's own notation: write it with json.dumps"
    match = re.search(r"\(byte (\d+)\)", str(error))
    if match and (word := re.match(rb"NaN|Infinity", data[int(match[1]) :])):
        return f"; {word[0].decode()} is no JSON: write null, or leave the key out"
    return "; write each object on one line: jq -c . FILE" if data in (b"{", b"}") else ""


def _choices_at(place: str, data: bytes) -> str:
    """Returns the allowed values of a field, and the one nearest to the actual value."""
    from prill.config.registry import nearest

    choices = _choices().get(re.split(r"[.\[]", place)[-1], ())
    value: Any = parse_object(data)
    # text after the error may be invalid JSON
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place) if value is not None else ():
        value = value[name] if name else value[int(index)]
    return (
        f"; expected one of {', '.join(choices)}{nearest(str(value), choices)}" if choices else ""
    )


@cache
def _fields(type_: type) -> dict[str, type | None]:
    """Returns the fields of a record, each with the record type inside it, if any."""
    hints = get_type_hints(type_)
    return {field.name: next(_records(hints[field.name]), None) for field in fields(type_)}


@cache
def _parts(type_: type) -> tuple[tuple[str, type], ...]:
    """Returns the fields that contain one record, then those that contain several."""
    hints = get_type_hints(type_)
    parts = ((name, part) for name, part in _fields(type_).items() if part is not None)
    return tuple(sorted(parts, key=lambda pair: get_origin(hints[pair[0]]) is tuple))


def _records(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _records(part)


@cache
def _types() -> tuple[type, ...]:
    seen: dict[type, None] = {}
    waiting: list[type] = [Trajectory, LabelRecord, Verdict]
    while waiting:
        if (type_ := waiting.pop()) not in seen:
            seen[type_] = None
            waiting += [part for _, part in _parts(type_)]
    return tuple(seen)


@cache
def _all_keys() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for type_ in _types() for name in _fields(type_)))


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """Returns the allowed values of each field that has a fixed set."""
    from prill.config.registry import literals

    return {
        field.name: choices
        for type_ in _types()
        for field in fields(type_)
        if (choices := literals(get_type_hints(type_)[field.name]))
    }
