"""Reads pickles as plain data: nothing is imported or executed.

A pickle is a program that may call any function it names. Here every name resolves to `StandIn`,
which stores its arguments and does nothing, so a malicious file cannot run code.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

from prill.datasets.reading.records import read_at_most
from prill.errors import InputError, UsageError
from prill.io.store import open_lines
from prill.types import StrPath

# A step with its page trees takes some MB; a larger file is damaged or a decompression bomb.
_LARGEST = 256 * 2**20
# Opcodes: such a step has some hundred thousand.
_MAX_STEPS = 10_000_000


class StandIn:
    """A placeholder for an object of any class.

    `fields` holds its attributes, or the items of a dictionary's subclass.
    """

    fields: dict[str, Any]

    def __new__(cls, *_args: object, **_named: object) -> StandIn:
        """Accepts any arguments of the real class."""
        instance = object.__new__(cls)
        instance.fields = {}
        return instance

    def __init__(self, *_args: object, **_named: object) -> None:
        """Accepts any arguments, like `__new__`."""

    def __call__(self, *_args: object, **_named: object) -> StandIn:
        """Acts as an inner class or a method, which pickles fetch with getattr."""
        return StandIn()

    def __setstate__(self, state: object) -> None:
        """Stores attributes: a dictionary, or a pair of `__dict__` and `__slots__` values."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update(
                    {key: value for key, value in part.items() if isinstance(key, str)}
                )

    def __setitem__(self, key: object, value: object) -> None:
        """Stores an item of a dictionary's subclass."""
        if isinstance(key, str):
            self.fields[key] = value

    def append(self, _item: object) -> None:
        """Ignores items of lists' and sets' subclasses."""

    extend = add = append


def load_pickle(path: StrPath, *, largest: int = _LARGEST, most_steps: int = _MAX_STEPS) -> Any:
    """Loads a pickle, plain or gzip, as built-in values and `StandIn`. Raises InputError.

    It also raises InputError for more bytes or opcodes than the limits.
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
            f"{path}: not a readable pickle: {str(error) or type(error).__name__}"
        ) from None


def fields(value: object) -> dict[str, Any]:
    """Returns the named parts of a dictionary or a `StandIn`; empty for anything else."""
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


# The opcodes that add keys to dictionaries and sets, and the distance of keys on the stack.
_KEYS = {
    pickle.SETITEM: 2,
    pickle.SETITEMS: 2,
    pickle.DICT: 2,
    pickle.ADDITEMS: 1,
    pickle.FROZENSET: 1,
}


class _Steps(dict[int, Callable[[Any], None]]):
    """The handlers of opcodes, limited to a number of opcodes.

    Each opcode may take memory, and gzip packs a thousand into a byte.
    """

    def __init__(self, most: int) -> None:
        super().__init__(pickle._Unpickler.dispatch)
        self._most = self._left = most
        for opcode, every in _KEYS.items():
            self[opcode[0]] = _with_flat_keys(super().__getitem__(opcode[0]), every)

    def __getitem__(self, opcode: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            raise pickle.UnpicklingError(f"more than {self._most} steps, which is the limit")
        return super().__getitem__(opcode)


def _with_flat_keys(load: Callable[[Any], None], every: int) -> Callable[[Any], None]:
    """Rejects tuples of tuples as keys.

    With 200 bytes of them, hashing can take forever, because shared parts are hashed each time.
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


# The Python implementation is used because the C one allocates as many memo entries as a file
# declares, 64 GB for nine bytes. The C one is about twice as fast.
class _Unpickler(pickle._Unpickler):
    def __init__(self, file: BytesIO, most_steps: int) -> None:
        super().__init__(file)
        vars(self)["dispatch"] = _Steps(most_steps)  # the type declares a plain dict

    def find_class(self, _module: str, _name: str) -> type[StandIn]:
        """Returns the placeholder class."""
        return StandIn
