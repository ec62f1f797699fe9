"""Records with one text in every field, whatever fields they come to have."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_DEPTH = 6
_NUMBERS: dict[Any, object] = {int: 1, float: 0.5, bool: False}


def filled(kind: type[_T], text: str, /, **own: Any) -> _T:
    """Makes a record: every string is the text, every sequence has one item.

    Args:
        kind: The record's type.
        text: The text.
        own: Values of fields that must not be the text.
    """
    made: _T = _record(kind, text, _DEPTH, own)
    return made


def _record(kind: Any, text: str, depth: int, own: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    values = {field.name: _value(hints[field.name], text, depth - 1) for field in fields(kind)}
    return kind(**{**values, **own})


def _value(hint: Any, text: str, depth: int) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is str or hint is Any or hint is object:
        return text
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        known = [arg for arg in args if arg is not type(None) and "Unset" not in str(arg)]
        return None if depth < 0 else _value(known[-1] if str not in known else str, text, depth)
    if origin is tuple and args[-1] is not ...:
        return tuple(_value(arg, text, depth) for arg in args)
    if origin in (tuple, list, Sequence):
        return () if depth < 0 else (_value(args[0], text, depth),)
    if origin in (dict, Mapping):
        return {} if depth < 0 else {text: text}
    if is_dataclass(hint):
        return _record(hint, text, depth, {})
    raise TypeError(f"no value for {hint}")
