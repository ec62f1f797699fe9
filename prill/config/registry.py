"""Registries of named objects with strictly validated options, and custom `module:Object`
references.

A maker is a class or a function whose parameters are the options of the objects that it makes.
Annotations give the types: `Annotated[int, msgspec.Meta(ge=1, description="…")]` adds bounds and a
description. If a maker has a parameter `spec` of a dataclass type, the fields of that dataclass are
options too. The same maker is used for Python keywords, TOML or JSON tables, and the command line.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from prill.errors import UsageError

Maker = Callable[..., Any]
# Makes a nested object from a name, a table, or the object itself. The second argument is the path
# for error messages.
PartMaker = Callable[[Any, str], Any]
_REQUIRED = inspect.Parameter.empty


class OptionError(UsageError):
    """Raised for an unknown, missing or mistyped option, whose name is `option`."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message, parameters=(option,))
        self.option = option


class RegistryEntry(NamedTuple):
    """A registered name: its description and its maker (`module:object`), imported on first use."""

    what: str
    maker: str


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a maker: annotation, default (None also if it is required) and description."""

    name: str
    type: Any
    default: Any
    required: bool
    description: str

    @property
    def type_name(self) -> str:
        """Returns the type as text, for listings."""
        return _type_name(self.type)


@dataclass(frozen=True)
class Registry:
    """A registry of names; other packages add names through the entry-point group `group`.

    `module:Object` and `file.py:Object` are accepted wherever a name is. What is made must have
    `members`, which are written as in messages: `reset(task)`.
    """

    kind: str
    entries: Mapping[str, RegistryEntry]
    group: str
    members: tuple[str, ...] = ()

    def names(self) -> dict[str, str]:
        """Returns every name with its description; names from other packages come last."""
        plugins = _plugins(self.group, tuple(sys.path))
        return {name: entry.what for name, entry in self.entries.items()} | {
            name: f"from {value}" for name, value in plugins if name not in self.entries
        }

    def maker(self, name: str) -> Maker:
        """Returns the maker for a name.

        An object that is neither a class nor a function is used directly and has no options. Raises
        UsageError for an unknown name; the message lists the known names.
        """
        made = self._object(name)
        return made if inspect.isclass(made) or inspect.isroutine(made) else lambda: made

    def make(
        self,
        name: str,
        options: Mapping[str, Any],
        *,
        place: str = "",
        prefix: str = "",
        parts: Mapping[Any, PartMaker] | None = None,
        lax: bool = False,
    ) -> Any:
        """Makes the object of a name, with its options, as `read_options` reads them.

        `prefix` stands before messages about the object itself. Raises UsageError for an unknown
        name and for an object without the members, OptionError for an invalid option.
        """
        maker, what = self.maker(name), f"{self.kind} {name!r}"
        made = maker(**read_options(maker, options, what, place=place, parts=parts, lax=lax))
        if not all(hasattr(made, member.partition("(")[0]) for member in self.members):
            needed = " and ".join(filter(None, (", ".join(self.members[:-1]), self.members[-1])))
            raise UsageError(
                f"{prefix}{what} returned a {type(made).__name__}, which has no {needed}"
            )
        return made

    def _object(self, name: str) -> Any:
        if name in self.entries:
            return load_object(self.entries[name].maker)
        if ":" in name:
            return load_object(name)
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group, name=name):
            return point.load()
        names = self.names()
        raise UsageError(
            f"unknown {self.kind} {name!r}{nearest(name, names)}; expected one of "
            f"{', '.join(names)}, or module:Object"
        )


@lru_cache(64)
def _plugins(group: str, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the names and objects of an entry-point group; every installed package is read."""
    from importlib.metadata import entry_points

    return tuple((point.name, point.value) for point in entry_points(group=group))


def load_object(reference: str) -> Any:
    """Imports the object of `package.module:Object` or `path/file.py:Object`.

    Raises UsageError that says what is missing.
    """
    place, _, attribute = reference.rpartition(":")
    if not place or (place.startswith(".") and not place.endswith(".py")):
        raise UsageError(f"{reference}: module {place!r} was not found")
    try:
        module = load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"{reference}: module {place!r} was not found") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UsageError(
            f"{reference}: {place} has no {attribute!r}{nearest(attribute, dir(module))}"
        ) from None


def list_options(maker: Maker) -> Mapping[str, Option]:
    """Returns the options of a maker by name, in the order of its parameters.

    The parameter `spec` is replaced by the fields of its dataclass.
    """
    return _options(typing.cast(Any, maker))


@lru_cache(256)
def _options(maker: Maker) -> Mapping[str, Option]:
    hints, spec = _hints(maker), spec_type(maker)
    options: dict[str, Option] = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if spec is not None and name == "spec":
            options |= list_options(spec)
            continue
        hint, required = hints.get(name, Any), parameter.default is _REQUIRED
        options[name] = Option(
            name, hint, None if required else parameter.default, required, _description(hint)
        )
    return options


def read_options(
    maker: Maker,
    given: Mapping[str, Any],
    what: str,
    *,
    place: str = "",
    parts: Mapping[Any, PartMaker] | None = None,
    lax: bool = False,
) -> dict[str, Any]:
    """Returns the validated keyword arguments for a maker.

    In messages, `what` names the object, such as "judge 'vlm'", and `place` is the path of its
    options, such as "judges[1].". `parts` maps each type that is itself made by name to its maker.
    `lax` reads numbers and booleans from text, for the command line. Raises OptionError for an
    option that is unknown, missing, or not of its type.
    """
    options = list_options(maker)
    _refuse_unknown(given, options, what, place)
    if missing := next((o for o in options.values() if o.required and o.name not in given), None):
        about = f". {missing.description}" if missing.description else ""
        raise OptionError(f"{place}{missing.name} is missing: {what} needs it{about}", missing.name)
    values = {
        name: _value(value, options[name], place, parts or {}, lax) for name, value in given.items()
    }
    spec = spec_type(maker)
    if spec is None:
        return values
    fields = {name: values.pop(name) for name in list_options(spec) if name in values}
    return {**values, "spec": spec(**fields)}


def check_options(
    maker: Maker,
    given: Mapping[str, Any],
    what: str,
    *,
    place: str = "",
) -> None:
    """Checks options strictly, as `read_options` does, but does not require all of them.

    Nested objects are not checked. Raises OptionError.
    """
    options = list_options(maker)
    _refuse_unknown(given, options, what, place)
    for name, value in given.items():
        _value(value, options[name], place, {}, lax=False)


def read_value(value: Any, option: Option, *, lax: bool = False) -> Any:
    """Returns one value converted to the type of its option.

    `lax` reads numbers and booleans from text. Raises OptionError.
    """
    return _value(value, option, "", {}, lax)


def _refuse_unknown(
    given: Mapping[str, Any], options: Mapping[str, Option], what: str, place: str
) -> None:
    for name in given:
        if name not in options:
            has = f"its options: {', '.join(options)}" if options else "it has no options"
            raise OptionError(
                f"{place}{name}: {what} has no such option{nearest(name, options)}; {has}", name
            )


def nearest(name: str, names: typing.Iterable[str]) -> str:
    """Returns ` (did you mean 'x'?)` if a name is similar to one of `names`, else an empty text."""
    close = get_close_matches(name, list(names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def spec_type(maker: Maker) -> type[Any] | None:
    """Returns the dataclass of the maker's parameter `spec`."""
    return _spec_type(typing.cast(Any, maker))


@lru_cache(256)
def _spec_type(maker: Maker) -> type[Any] | None:
    spec = bare_type(_hints(maker).get("spec"))
    return spec if inspect.isclass(spec) and is_dataclass(spec) and spec is not maker else None


def _value(
    value: Any, option: Option, place: str, parts: Mapping[Any, PartMaker], lax: bool
) -> Any:
    here = f"{place}{option.name}"
    bare, several = bare_type(option.type), is_sequence(option.type)
    if several:
        bare = bare_type(get_args(bare)[0])
    if bare in parts and value is not None:
        if not several:
            return parts[bare](value, here)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise OptionError(f"{here}: expected a list, got {type(value).__name__}", option.name)
        return [parts[bare](one, f"{here}[{i}]") for i, one in enumerate(value)]
    if bare is Path and isinstance(value, str):
        value = Path(value)
    elif bare is str and isinstance(value, Path):
        value = str(value)
    hint, optional = _without_none(option.type)
    if value is None and optional:
        return None
    try:
        read = msgspec.convert(value, hint, strict=not lax)
    # JSON can hold an unpaired surrogate.
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise OptionError(
            f"{here}: {_fault(str(error).rstrip('.'), value, option.type)}", option.name
        ) from None
    except TypeError:  # msgspec cannot check this annotation, so the maker has to
        read = value
    if not all(map(isfinite, _floats(read))):
        raise OptionError(f"{here}: expected a finite number, got {value!r}", option.name)
    return read


def _fault(text: str, value: Any, hint: Any) -> str:
    """Returns msgspec's error text with the actual value in place of its type."""
    if text.startswith("Invalid enum value") and (choices := literals(hint)):
        return (
            f"{text}; expected one of "
            f"{', '.join(map(str, choices))}{nearest(str(value), map(str, choices))}"
        )
    return f"{re.sub(r', got `[^`]+`$', '', text)}, got {value!r}"


def literals(hint: Any) -> tuple[Any, ...]:
    """Returns the values that a `Literal` annotation allows; empty for other annotations."""
    if get_origin(hint) is typing.Literal:
        return get_args(hint)
    return next((choices for part in get_args(hint) if (choices := literals(part))), ())


def _floats(value: Any) -> Iterator[float]:
    """Yields the floating-point numbers of a value, including those in lists and tables."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _floats(inner)
    elif isinstance(value, dict):
        yield from _floats(list(value.values()))


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Returns the type without None but with its bounds, and whether None was allowed.

    msgspec accepts bounds only on numbers.
    """
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        bare, optional = _without_none(inner)
        return (Annotated[(bare, *notes)] if optional else hint), optional
    args = get_args(hint)
    if get_origin(hint) in _UNIONS and type(None) in args:
        return typing.Union[tuple(arg for arg in args if arg is not type(None))], True  # noqa: UP007 - made at run time
    return hint, hint is Any


def bare_type(hint: Any) -> Any:
    """Returns the type without Annotated and None."""
    hint, _ = _without_none(hint)
    return bare_type(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def is_sequence(hint: Any) -> bool:
    """Returns whether the type, without Annotated and None, is a sequence of elements."""
    return get_origin(bare_type(hint)) in (Sequence, list, tuple)


def _hints(maker: Maker) -> dict[str, Any]:
    source = maker if is_dataclass(maker) or not inspect.isclass(maker) else maker.__init__
    try:
        return typing.get_type_hints(source, include_extras=True)
    except (NameError, TypeError):  # a name that is imported only under TYPE_CHECKING
        return {}


def _description(hint: Any) -> str:
    if get_origin(hint) is not Annotated:
        return ""
    notes = (
        note.description if isinstance(note, msgspec.Meta) else note for note in get_args(hint)[1:]
    )
    return next((note for note in notes if isinstance(note, str)), "")


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _type_name(get_args(hint)[0])
    if get_origin(hint) is typing.Literal:
        return " | ".join(map(str, get_args(hint)))
    names = [_type_name(arg) for arg in get_args(hint) if arg not in (type(None), Ellipsis)]
    origin = get_origin(hint)
    if names and inspect.isclass(origin) and origin not in _UNIONS:
        return f"{origin.__name__} of {', '.join(names)}"
    if names:
        return " | ".join(names)
    return getattr(hint, "__name__", str(hint))


_UNIONS = (typing.Union, type(int | str))


_PLUGIN = "prill_plugin_"


def loaded_files() -> tuple[Path, ...]:
    """Returns the files of all modules loaded by `load_file`; worker processes need them too."""
    return tuple(
        Path(str(module.__file__))
        for name, module in sys.modules.items()
        if name.startswith(_PLUGIN)
    )


def load_file(path: Path) -> Any:
    """Imports a file as a module, once; its module name is unique, so that its classes can be
    pickled.
    """
    path = path.resolve()
    name = f"{_PLUGIN}{path.stem}_{sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file (.py)")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with ExitStack() as on_failure:
        on_failure.callback(sys.modules.pop, name)
        spec.loader.exec_module(module)
        on_failure.pop_all()
    return module
