"""Reads pickles as plain data: nothing is imported or executed.

A pickle is a program that may call any function it names. Here every name gives `StandIn`, which
keeps what it is given and does nothing, so a hostile file can only hold nonsense.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from os import PathLike
from typing import Any

from prill.datasets.reading.records import read_at_most
from prill.errors import InputError, UsageError
from prill.io.store import open_lines

# A step with its page trees takes some MB; more is damage, or an archive made to fill the memory.
_LARGEST = 256 * 2**20
# Opcodes: such a step has some hundred thousand.
_MAX_STEPS = 10_000_000


class StandIn:
    """In place of an object of any class: `fields` holds its attributes, or the items of a
    dictionary's subclass.
    """

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
        """Attributes come as a dictionary, or in a pair of two: those of `__dict__` and those of
        `__slots__`.
        """
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update(
                    {key: value for key, value in part.items() if isinstance(key, str)}
                )

    def __setitem__(self, key: object, value: object) -> None:
        """An item of a dictionary's subclass."""
        if isinstance(key, str):
            self.fields[key] = value

    def append(self, _item: object) -> None:
        """Items of lists' and sets' subclasses are not kept."""

    extend = add = append


def load_pickle(
    path: str | PathLike[str], *, largest: int = _LARGEST, most_steps: int = _MAX_STEPS
) -> Any:
    """Loads a pickle, plain or gzip, as built-in values and `StandIn`. Raises InputError.

    So it does for more bytes or opcodes than that.
    """
    try:
        with open_lines(path) as file:
            data = read_at_most(file, largest)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, EOFError, zlib.error, UsageError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    try:
        return _Unpickler(BytesIO(data), most_steps).load()
    except _BROKEN as error:
        raise InputError(
            f"{path}: no readable pickle: {str(error) or type(error).__name__}"
        ) from None


def fields(value: object) -> dict[str, Any]:
    """The named parts of a dictionary or a `StandIn`; empty for anything else."""
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


# What puts keys into dictionaries and sets, and the distance of keys on the stack.
_KEYS = {
    pickle.SETITEM: 2,
    pickle.SETITEMS: 2,
    pickle.DICT: 2,
    pickle.ADDITEMS: 1,
    pickle.FROZENSET: 1,
}


class _Steps(dict[int, Callable[[Any], None]]):
    """What to do at each opcode, for the first of them only: each may take memory, and gzip packs a
    thousand into a byte.
    """

    def __init__(self, most: int) -> None:
        super().__init__(pickle._Unpickler.dispatch)
        self._most = self._left = most
        for opcode, every in _KEYS.items():
            self[opcode[0]] = _with_flat_keys(super().__getitem__(opcode[0]), every)

    def __getitem__(self, opcode: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            raise pickle.UnpicklingError(f"more than {self._most} steps; more are not taken")
        return super().__getitem__(opcode)


def _with_flat_keys(load: Callable[[Any], None], every: int) -> Callable[[Any], None]:
    """Refuses tuples of tuples as keys: 200 bytes of them can take for ever, since what they share
    is hashed each time.
    """

    def checked(unpickler: Any) -> None:
        stack = unpickler.stack
        for key in (
            stack[-2:-1]
            if load is pickle._Unpickler.dispatch[pickle.SETITEM[0]]
            else stack[::every]
        ):
            if isinstance(key, tuple) and any(isinstance(part, tuple) for part in key):
                raise pickle.UnpicklingError("a key is a tuple of tuples")
        load(unpickler)

    return checked


# The one in Python: that in C makes room for as many remembered objects as a file says it has, 64
# GB for nine bytes. It is about twice as fast.
class _Unpickler(pickle._Unpickler):
    def __init__(self, file: BytesIO, most_steps: int) -> None:
        super().__init__(file)
        vars(self)["dispatch"] = _Steps(most_steps)  # its type says that all have the same

    def find_class(self, _module: str, _name: str) -> type[StandIn]:
        """The one class there is."""
        return StandIn
