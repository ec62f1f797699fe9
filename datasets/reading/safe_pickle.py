"""Pickles read as plain data. Nothing of them is ever run or imported: whatever they name becomes a stand-in.

A pickle is a program that may call any function it names. Here every name gives `StandIn`, which keeps what it is given
and does nothing, so a hostile file can only hold nonsense.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from io import BytesIO
from os import PathLike
from typing import Any

from prill.datasets.reading.records import read_at_most
from prill.errors import InputError, UsageError
from prill.store import open_lines

# A step with its page trees takes some MB; more is damage, or an archive made to fill the memory.
_LARGEST = 256 * 2**20


class StandIn:
    """In place of an object of any class: `fields` holds its attributes, or the items of a dictionary's subclass."""

    fields: dict[str, Any]

    def __new__(cls, *_args: object, **_named: object) -> StandIn:
        """Takes whatever the real class would have taken."""
        instance = object.__new__(cls)
        instance.fields = {}
        return instance

    def __init__(self, *_args: object, **_named: object) -> None:
        """As `__new__`."""

    def __call__(self, *_args: object, **_named: object) -> StandIn:
        """In place of an inner class or a method, which pickles fetch with getattr."""
        return StandIn()

    def __setstate__(self, state: object) -> None:
        """Attributes come as a dictionary, or in a pair of two: those of `__dict__` and those of `__slots__`."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update({key: value for key, value in part.items() if isinstance(key, str)})

    def __setitem__(self, key: object, value: object) -> None:
        """An item of a dictionary's subclass."""
        if isinstance(key, str):
            self.fields[key] = value

    def append(self, _item: object) -> None:
        """Items of lists' and sets' subclasses are not kept."""

    extend = add = append


def load_pickle(path: str | PathLike[str]) -> Any:
    """What a pickle file, plain or gzip, holds: built-in values and `StandIn`. Raises InputError where it is broken."""
    try:
        with open_lines(path) as file:
            data = read_at_most(file, _LARGEST)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, EOFError, zlib.error, UsageError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    try:
        return _Unpickler(BytesIO(data)).load()
    except _BROKEN as error:
        raise InputError(f"{path}: no readable pickle: {str(error) or type(error).__name__}") from None


def fields(value: object) -> dict[str, Any]:
    """The named parts of a dictionary or a stand-in; empty for anything else."""
    if isinstance(value, StandIn):
        return value.fields
    return value if isinstance(value, dict) else {}


_BROKEN = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


# The one in Python: that in C makes room for as many remembered objects as a file says it has, 64 GB for nine bytes. It is
# about twice as fast.
class _Unpickler(pickle._Unpickler):
    def find_class(self, _module: str, _name: str) -> type[StandIn]:
        """The one class there is."""
        return StandIn
