"""Checks arguments of the Python API: records, judges and lists.

Each error message says what to write instead.
"""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from prill.errors import InputError, UsageError
from prill.types import LabelRecord, Trajectory

# An invalid field: its path, the expected type, and the actual value.
_Fault = tuple[str, str, object]
_Check = Callable[[Any], _Fault | None]
_T = TypeVar("_T")
_WORDS = {
    str: "text (str)",
    bool: "True or False",
    int: "a whole number (int)",
    float: "a number (float)",
    dict: "a dict",
}
_MAX_SHOWN = 60  # maximum length of a value in a message
_MAX_NAMES = 1000  # maximum number of files that are searched for a similar name


def check_record(record: Trajectory | LabelRecord) -> None:
    """Raises InputError if a field's value is not of its declared type.

    The message names the record, the field, the expected type, the actual value and, if there is
    one, the nearest valid value.
    """
    if not isinstance(record, Trajectory | LabelRecord):
        raise InputError(
            f"a {type(record).__name__} is neither a prill.Trajectory nor a prill.LabelRecord"
        )
    fault = _checker(LabelRecord if isinstance(record, LabelRecord) else Trajectory)(record)
    if fault is None and not record.id:
        fault = ".id", "non-empty text", record.id
    if fault is not None:
        kind = "label" if isinstance(record, LabelRecord) else "trajectory"
        raise InputError(f"{kind} {_shown(record.id)}: {_describe(fault)}")


def missing_image(path: str) -> str | None:
    """Returns the error message for a screenshot that is not a file, or None if it is one."""
    if os.path.isfile(path):
        return None
    from prill.config.registry import nearest

    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            suggestion = nearest(name, [entry.name for entry in islice(entries, _MAX_NAMES)])
    except OSError:
        suggestion = ""
    return f"expected an image file; there is none at {path!r}{suggestion}"


def expect_judge(judge: object) -> None:
    """Raises UsageError for an object that is not a judge; the message says how to make one."""
    if (
        callable(judge)
        and not inspect.isclass(judge)
        and _has(judge, "info")
        and _has(judge, "screenshots")
    ):
        return
    if isinstance(judge, str | os.PathLike | Mapping):
        raise UsageError(
            f"the judge is {_shown(judge)}; create it first, prill.judge({_shown(judge)})"
        )
    if inspect.isclass(judge):
        raise UsageError(
            f"the judge is the class {judge.__name__}; create an object, {judge.__name__}(…)"
        )
    if inspect.isroutine(judge):
        name = getattr(judge, "__name__", "f")
        raise UsageError(
            f"the judge is the plain function {name}; decorate it with "
            f"@prill.as_judge({name!r}, version='1')"
        )
    raise UsageError(
        f"a {type(judge).__name__} is not a judge; a judge has info, screenshots and "
        "__call__ (see prill.as_judge)"
    )


def _has(judge: object, name: str) -> bool:
    """Returns whether an object has an attribute, without evaluating a property."""
    return inspect.getattr_static(judge, name, None) is not None or hasattr(judge, name)


def expect_several(items: Iterable[_T], what: Literal["trajectories", "labels"]) -> Iterable[_T]:
    """Returns the items of an iterable. Raises UsageError for a single record or any other
    value.
    """
    if isinstance(items, Trajectory | LabelRecord):
        one = "trajectory" if isinstance(items, Trajectory) else "label"
        raise UsageError(
            f"expected a list of {what}, got one {type(items).__name__}; put it into a "
            f"list, [{one}]"
        )
    if not isinstance(items, Iterable):
        raise UsageError(f"expected a list of {what}, got a value of type {type(items).__name__}")
    if isinstance(items, str | bytes | Mapping):
        raise UsageError(f"expected a list of {what}, got a {type(items).__name__}")
    return items


def checked_trajectories(items: Iterable[_T], *passed: type) -> Iterable[_T]:
    """Checks each trajectory: items of a list at once, those of other iterables when they are read.

    Items whose type is in `passed` are not checked. Raises UsageError and InputError.
    """
    items = expect_several(items, "trajectories")
    if isinstance(items, Sequence):
        for index, item in enumerate(items):
            _check_item(item, index, passed)
        return items
    return _each_checked(items, passed)


def _each_checked(items: Iterable[_T], passed: tuple[type, ...]) -> Iterator[_T]:
    for index, item in enumerate(items):
        _check_item(item, index, passed)
        yield item


def _check_item(item: object, index: int, passed: tuple[type, ...]) -> None:
    if isinstance(item, Trajectory):
        check_record(item)
    elif not isinstance(item, passed):
        raise UsageError(
            f"item {index} of the trajectories is a {type(item).__name__}, not a "
            "prill.Trajectory; read files with prill.read_trajectories"
        )


def unwritable(value: object, writes: Callable[[object], object], at: str) -> str | None:
    """Returns the path and type of the first value that cannot be written as JSON."""
    try:
        writes(value)
    except TypeError:
        inner: Iterable[tuple[str, object]] = ()
        if isinstance(value, Mapping):
            inner = ((f"{at}.{name}", part) for name, part in value.items())
        elif isinstance(value, list | tuple):
            inner = ((f"{at}[{i}]", part) for i, part in enumerate(value))
        elif is_dataclass(value):
            inner = ((f"{at}.{part.name}", getattr(value, part.name)) for part in fields(value))
        found = next(
            (problem for where, part in inner if (problem := unwritable(part, writes, where))), None
        )
        return (
            found
            or f"{at.removeprefix('.')}: a value of type {type(value).__name__} cannot be written "
            "as JSON"
        )
    return None


def _describe(fault: _Fault) -> str:
    where, expected, value = fault
    return (
        f"{where.removeprefix('.')}: expected {expected}; got "
        f"{_shown(value)}{_near(expected, value)}"
    )


def _shown(value: object) -> str:
    """Returns a short form of a value, without calling the `repr` of unknown types."""
    if not isinstance(value, str | bytes | bool | int | float | dict | list | tuple | type(None)):
        return f"a {type(value).__name__}"
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    text = (
        f"a number of {value.bit_length()} bits"
        if isinstance(value, int) and value.bit_length() > 256
        else repr(value)
    )
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _near(expected: str, value: object) -> str:
    from prill.config.registry import nearest

    if expected == _WORDS[str] and isinstance(value, int | float):
        return f" (did you mean {_shown(str(value))}?)"
    choices = expected.removeprefix("one of ").split(", ")
    return nearest(value.lower(), choices) if isinstance(value, str) and len(choices) > 1 else ""


@cache
def _checker(type_: type) -> _Check:
    """Returns a function that checks a record's fields; built once per type."""
    hints = get_type_hints(type_)
    names = [part.name for part in fields(type_)]
    # Fast path: nearly all values are exactly of these types.
    parts = [(name, _plain_types(hints[name]), _make_check(hints[name])) for name in names]
    read = attrgetter(*names)

    def check(value: object) -> _Fault | None:
        if not isinstance(value, type_):
            return "", f"a prill.{type_.__name__}", value
        for (name, plain, check_part), part in zip(parts, read(value), strict=False):
            if type(part) not in plain and (fault := check_part(part)) is not None:
                return f".{name}{fault[0]}", fault[1], fault[2]
        return None

    return check


def _plain_types(hint: Any) -> frozenset[type]:
    args = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return frozenset(arg for arg in args if arg in (str, bool, int, float, type(None)))


def _make_check(hint: Any) -> _Check:
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _check_inner(hint)
    if origin is Literal:
        return _check_choice(args)
    if origin in (typing.Union, types.UnionType):
        others = [arg for arg in args if arg is not type(None)]
        return (
            _optional(_make_check(others[0])) if len(others) == 1 and len(args) == 2 else _anything
        )
    if origin is tuple:
        return _check_several(_make_check(args[0]), None if args[1] is Ellipsis else len(args))
    bare = origin or hint
    return _check_type(bare) if bare in _WORDS else _anything


def _check_inner(type_: type) -> _Check:
    made: list[
        _Check
    ] = []  # built on first use: a task contains trajectories, so the types are recursive

    def check(value: object) -> _Fault | None:
        if not made:
            made.append(_checker(type_))
        return made[0](value)

    return check


def _anything(value: object) -> None:
    return None


def _optional(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _check_choice(choices: tuple[str, ...]) -> _Check:
    def check(value: object) -> _Fault | None:
        return (
            None
            if isinstance(value, str) and value in choices
            else ("", f"one of {', '.join(choices)}", value)
        )

    return check


def _check_type(type_: type) -> _Check:
    allowed = (int, float) if type_ is float else type_

    def check(value: object) -> _Fault | None:
        fits = isinstance(value, allowed) and (type_ is bool or not isinstance(value, bool))
        return None if fits else ("", _WORDS[type_], value)

    return check


def _check_several(check: _Check, count: int | None) -> _Check:
    what = "a tuple" if count is None else f"{count} numbers"

    def check_all(value: object) -> _Fault | None:
        if not isinstance(value, tuple | list) or (count is not None and len(value) != count):
            return "", what, value
        for index, part in enumerate(value):
            if (fault := check(part)) is not None:
                return f"[{index}]{fault[0]}", fault[1], fault[2]
        return None

    return check_all
