"""Base class of configurations: validated on construction from keywords, TOML or flags.

`Config` is the base of everything that is described by fields: a run, an environment, the retries
of a run. `PartConfig` is the base of what is made by name with options of its own: a judge, a
model, a captioner, a policy. Both are frozen, compare by value, and name the path of whatever is
wrong (`judge.frames: …`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeGuard, Union, get_args, get_origin

from prill.config.registry import Option, OptionError, list_options, nearest, read_value
from prill.config.toml import read_table


class PartConfig(ABC):
    """Base of parts made by name: `JudgeConfig("vlm", model="gpt-4o", frames=2)`.

    A table `{name = "vlm", frames = 2}` and the name alone stand for the same. `name` may be
    `module:Object` or `file.py:Object`. The options are checked when the thing is made.

    Args:
        name: The name.
        **options: The options of what is made.

    Raises:
        OptionError: The name is empty or not a text.
    """

    __slots__ = ("name", "options")
    kind: ClassVar[str] = "part"
    kinds: ClassVar[str] = "parts"
    may_be_nameless: ClassVar[bool] = False
    name: str
    options: Mapping[str, Any]

    def __init__(self, name: str, /, **options: Any) -> None:
        if not isinstance(name, str) or not (name or self.may_be_nameless):
            raise OptionError(f"name: expected the name of a {self.kind}, got {name!r}", "name")
        object.__setattr__(self, "name", name)
        said = {
            key.replace("-", "_"): str(value) if isinstance(value, Path) else value
            for key, value in options.items()
        }
        object.__setattr__(self, "options", said)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: make another one")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.name, self.options) == (
            other.name,
            other.options,
        )

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({self.name!r}{options})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.name, dict(self.options))

    @classmethod
    def read(cls, value: Any, path: str = "") -> Any:
        """Makes the configuration that a name or a table stands for.

        Args:
            value: A name, a table with `name`, a configuration, or a made object.
            path: Where the value stands, for messages.

        Returns:
            The configuration. A made object is returned unchanged.

        Raises:
            OptionError: The table has no name, or the value is anything else.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            if not value:
                raise OptionError(
                    f"{path or cls.kind}: expected the name of a {cls.kind}, got ''", path
                )
            return cls(value)
        if isinstance(value, Mapping):
            table = dict(value)
            name = table.pop("name", "" if cls.may_be_nameless else None)
            if not isinstance(name, str) or not (name or cls.may_be_nameless):
                prefix = f"{path}." if path else ""
                if name is None:
                    given = f" (given: {', '.join(map(str, table))})" if table else ""
                    raise OptionError(
                        f"{prefix}name is missing: name the {cls.kind}{given}", "name"
                    )
                raise OptionError(
                    f"{prefix}name: expected the name of a {cls.kind}, got {name!r}", "name"
                )
            return cls(name, **{str(key): option for key, option in table.items()})
        if value is None or isinstance(value, int | float | bytes | list | tuple):
            raise OptionError(
                f"{path or cls.kind}: expected the name of a {cls.kind} or a table, got {value!r}",
                path,
            )
        return value

    def mapping(self) -> dict[str, Any]:
        """Name and options in one table; parts among the options are names or tables, made objects
        stay.
        """
        return {
            "name": self.name,
            **{key: _unwrapped(value) for key, value in self.options.items()},
        }

    def table(self) -> dict[str, Any]:
        """The configuration as a TOML table."""
        return {"name": self.name, **{key: plain(value) for key, value in self.options.items()}}

    @classmethod
    @abstractmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Lists the options of what a table describes.

        Args:
            table: Its `name`, and what else decides which options there are.

        Returns:
            The options by name.

        Raises:
            UsageError: There is nothing of that name.
        """

    @classmethod
    def model_options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Lists the options of the model that a table names, where they may stand next to the
        part's own.

        Args:
            table: Its `name`, and the `model`.

        Returns:
            The options by name; empty where no model is asked.
        """
        return {}

    @classmethod
    def knows(cls, name: str) -> bool:
        """Tells whether a word can be a name. On a command line, one that cannot stands for what
        comes next.

        Args:
            name: The word.

        Returns:
            Whether it can.
        """
        return True

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Lists the names whose objects have an option, for messages.

        Args:
            option: The option.

        Returns:
            The names.
        """
        return []


def _unwrapped(value: Any) -> Any:
    if isinstance(value, PartConfig):
        return value.mapping() if value.options else value.name
    if isinstance(value, list | tuple):
        return [_unwrapped(inner) for inner in value]
    return value


def get_name(part: Any) -> Any:
    """The name in a part's description: a name, a table or a configuration."""
    return part.get("name") if isinstance(part, Mapping) else getattr(part, "name", part)


def _remake(cls: type[PartConfig], name: str, options: dict[str, Any]) -> PartConfig:
    return cls(name, **options)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of run configurations: frozen dataclasses whose fields are checked against their
    annotations.

    Numbers may have bounds (`Annotated[int, msgspec.Meta(ge=1)]`), a path becomes text, a sequence
    a tuple, a table the nested configuration that the field's annotation names.

    Raises:
        OptionError: A value is not what its field asks for.
    """

    def __post_init__(self) -> None:
        for name, option in config_options(type(self)).items():
            object.__setattr__(self, name, _checked(getattr(self, name), option))
        self.check()

    def check(self) -> None:
        """Checks options that depend on each other. Subclasses override it.

        Raises:
            UsageError: Some options do not go together.
        """

    @classmethod
    def read(cls, value: Any, path: str = "") -> Self:
        """Makes the configuration that a table stands for.

        Args:
            value: A table with the fields as keys, or a configuration.
            path: Where the table stands, for messages.

        Returns:
            The configuration.

        Raises:
            OptionError: A key is unknown or missing, or its value does not fit.
        """
        if isinstance(value, cls):
            return value
        prefix = f"{path}." if path else ""
        if not isinstance(value, Mapping):
            raise OptionError(f"{path or cls.__name__}: expected a table, got {value!r}", path)
        options = config_options(cls)
        try:
            table = cls.normalized(value)
        except OptionError as error:
            raise OptionError(f"{prefix}{error}", error.option) from None
        for key in table:
            if key not in options:
                there = f"; there are: {', '.join(options)}" if len(options) < 40 else ""
                raise OptionError(
                    f"{prefix}{key}: there is no such option{nearest(key, options)}{there}", key
                )
        # what is missing in a nested configuration is named by its whole path
        for option in options.values():
            if option.required and _is_config(inner_config(option.type)):
                table.setdefault(option.name, {})
        if missing := next(
            (o for o in options.values() if o.required and o.name not in table), None
        ):
            about = f": {missing.description}" if missing.description else ""
            raise OptionError(f"{prefix}{missing.name} is missing{about}", missing.name)
        try:
            return cls(**table)
        except OptionError as error:
            raise OptionError(f"{prefix}{error}", error.option) from None

    @classmethod
    def normalized(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table with the fields' names as keys, nested ones included; a subclass reads older
        and shorter forms here.

        Args:
            table: A table of a file, or of flags.

        Returns:
            The table; one that is normalized already comes back equal.

        Raises:
            OptionError: Two forms of one field stand in it.
        """
        normal = {str(key).replace("-", "_"): value for key, value in table.items()}
        for name, option in config_options(cls).items():
            inner = inner_config(option.type)
            if _is_config(inner) and isinstance(below := normal.get(name), Mapping):
                try:
                    normal[name] = inner.normalized(below)
                except OptionError as error:
                    raise OptionError(f"{name}.{error}", error.option) from None
        return normal

    @classmethod
    def load(cls, path: str | os.PathLike[str], **over: Any) -> Self:
        """Reads the configuration of a TOML or JSON file.

        Args:
            path: The file.
            **over: Fields that win over those of the file.

        Returns:
            The configuration.

        Raises:
            UsageError: The file cannot be read, or holds something else; the message names file and
                key.
        """
        try:
            return cls.read({**cls.normalized(load_table(path)), **over})
        except OptionError as error:
            raise OptionError(f"{path}: {error}", error.option) from None

    def but(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed.

        Args:
            **changes: The fields.

        Returns:
            The new configuration.

        Raises:
            OptionError: A value does not fit.
        """
        return replace(self, **changes)

    def table(self) -> dict[str, Any]:
        """The configuration as a TOML table, without default values."""
        options = config_options(type(self))
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {
            name: plain(value)
            for name, value in values.items()
            if value is not None and value != options[name].default
        }


def load_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the table of a TOML or JSON file.

    Args:
        path: The file.

    Returns:
        The table, null as if it were left out. Hyphens in its own keys, not in those of inner
        tables, are underscores.

    Raises:
        UsageError: The file cannot be read.
    """
    return {
        str(key).replace("-", "_"): value for key, value in _without_nulls(read_table(path)).items()
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two tables. A part of another name takes nothing from the first table.

    Args:
        table: The first table.
        over: The second table, whose keys win.

    Returns:
        A new table; tables in both are merged.
    """
    result = dict(table)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, str) and isinstance(value, Mapping):
            below = {"name": below}
        if (
            isinstance(below, Mapping)
            and isinstance(value, Mapping)
            and value.get("name", below.get("name")) == below.get("name")
        ):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def inner_config(hint: Any) -> type[PartConfig] | type[Config] | None:
    """The configuration that a field's annotation names, alone, optional or among other things;
    None: a plain value.
    """
    if get_origin(hint) is Annotated:
        return inner_config(get_args(hint)[0])
    if get_origin(hint) is Sequence:  # see `_element`
        return None
    for one in get_args(hint) or (hint,):
        if (
            isinstance(one, type)
            and get_origin(one) is None
            and issubclass(one, PartConfig | Config)
        ):
            return one
    return None


def _element(hint: Any) -> type[Config] | None:
    """The configuration of which a field's annotation names a sequence."""
    if get_origin(hint) is Annotated:
        return _element(get_args(hint)[0])
    inner = get_args(hint)[0] if get_origin(hint) is Sequence else None
    return inner if isinstance(inner, type) and issubclass(inner, Config) else None


def _is_config(inner: type[PartConfig] | type[Config] | None) -> TypeGuard[type[Config]]:
    """Whether it is a configuration with fields of its own, and no family of which a name chooses
    one.
    """
    return inner is not None and issubclass(inner, Config) and not hasattr(inner, "chosen")


def plain(value: Any) -> Any:
    """The value as plain TOML or JSON."""
    if isinstance(value, PartConfig | Config):
        return value.table()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, os.PathLike) else value


def config_options(cls: type[Config]) -> Mapping[str, Option]:
    """The fields of a configuration as options, in order."""
    made = {part.name for part in fields(cls) if part.init}
    return {name: option for name, option in list_options(cls).items() if name in made}


def _checked(value: Any, option: Option) -> Any:
    if value is None and not option.required and option.default is None:
        return None
    if (inner := inner_config(option.type)) is not None:
        return inner.read(
            _named(value, option.default) if issubclass(inner, PartConfig) else value, option.name
        )
    if (element := _element(option.type)) is not None:
        if not isinstance(value, list | tuple):
            raise OptionError(
                f"{option.name}: expected a list of tables, got {value!r}", option.name
            )
        return tuple(
            element.read(one, f"{option.name}[{index}]") for index, one in enumerate(value)
        )
    return _without_paths(
        read_value(_without_paths(value), replace(option, type=_without_path_types(option.type)))
    )


@cache
def _without_path_types(hint: Any) -> Any:
    """The annotation with text where it asks for paths: msgspec checks no union of text and paths,
    and values are text here.
    """
    if hint is Path:
        return str
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_without_path_types(args[0]), *args[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_without_path_types, args))]  # noqa: UP007 - made at run time
    if origin in (list, tuple, Sequence):
        return origin[tuple(map(_without_path_types, args))]
    return hint


def _named(value: Any, default: Any) -> Any:
    """Options without a name are those of the part that the field has by default."""
    if (
        isinstance(value, Mapping)
        and "name" not in value
        and isinstance(name := get_name(default), str)
    ):
        return {"name": name, **value}
    return value


def _without_paths(value: Any) -> Any:
    """Paths become text, so that a configuration compares and is written the same however it was
    made; lists become tuples.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple | range) and not hasattr(value, "_fields"):
        return tuple(_without_paths(inner) for inner in value)
    return value
