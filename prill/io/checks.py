"""Checks arguments of the Python API: records, judges and lists.

Each error message says what to write instead.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Literal, TypeVar

import msgspec

from prill.actions.tool_calls import unknown_kind
from prill.errors import InputError, UsageError
from prill.io.faults import line_fault
from prill.types import Action, LabelRecord, Observation, Step, StepLabel, Task, Trajectory

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_MAX_SHOWN = 60  # maximum length of a value in a message
_MAX_NAMES = 1000  # maximum number of files that are searched for a similar name


def check_record(record: Trajectory | LabelRecord) -> None:
    """Raises InputError if a field's value is not of its declared type.

    The message names the record and the field, as the one about a line of a file does.
    """
    if not isinstance(record, Trajectory | LabelRecord):
        raise InputError(
            f"a {type(record).__name__} is neither a prill.Trajectory nor a prill.LabelRecord"
        )
    kind = "label" if isinstance(record, LabelRecord) else "trajectory"
    place = f"{kind} {_shown(record.id)}"
    if not record.id:
        raise InputError(f"{place}: id: expected non-empty text")
    try:
        # objects of other types are allowed in the metadata only: no field takes a list in their
        # place
        table = msgspec.to_builtins(record, builtin_types=(bytes,), enc_hook=lambda value: [[]])
        msgspec.convert(table, type(record))
    except (msgspec.ValidationError, OverflowError) as error:
        try:
            fault = line_fault(msgspec.json.encode(table), error, type(record))
        except (TypeError, OverflowError, UnboundLocalError):
            fault = str(error)
        fault = re.sub(r"(.*) - at `\$\.([^`]*)`", r"\2: \1", fault)
        raise InputError(f"{place}: {fault}") from None
    for path, part, wanted in _parts(record):
        if not isinstance(part, wanted):
            raise InputError(
                f"{place}: {path}: expected a prill.{wanted.__name__}; got {_shown(part)}"
            )


def _parts(record: Trajectory | LabelRecord) -> Iterator[tuple[str, object, type]]:
    """Yields the records in a record, with their paths and types."""
    if isinstance(record, LabelRecord):
        for index, label in enumerate(record.steps or ()):
            yield f"steps[{index}]", label, StepLabel
        return
    yield "task", record.task, Task
    for index, step in enumerate(record.steps):
        yield f"steps[{index}]", step, Step
        if isinstance(step, Step):
            yield f"steps[{index}].observation", step.observation, Observation
            yield f"steps[{index}].action", step.action, Action
    if record.final is not None:
        yield "final", record.final, Observation


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
        for step in item.steps:
            _warn_of_kind(step.action.kind)
    elif not isinstance(item, passed):
        raise UsageError(
            f"item {index} of the trajectories is a {type(item).__name__}, not a "
            "prill.Trajectory; read files with prill.read_trajectories"
        )


@cache
def _warn_of_kind(kind: str) -> None:
    """Warns of an unknown action kind, once."""
    if (problem := unknown_kind(kind)) is not None:
        _log.warning("%s; judges see it as it is", problem)


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
