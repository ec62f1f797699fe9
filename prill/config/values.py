"""Base classes of configurations, validated on construction from keywords, TOML or flags.

`Config` is the base of everything that is described by fields, such as a run, an environment, or
the retries of a run. `PartConfig` is the base of objects that are made by name with their own
options: a judge, a model, a captioner, a policy. Both are frozen, compare by value, and give the
path of an invalid value in messages (`judge.frames: …`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeGuard, Union, get_args, get_origin

from prill.config.registry import (
    Option,
    OptionError,
    Registry,
    list_options,
    nearest,
    read_value,
    spec_type,
)
from prill.config.toml import read_table
from prill.errors import UsageError


class PartConfig:
    """Base of parts made by name: `JudgeConfig("vlm", model="gpt-4o", frames=2)`.

    It can also be written as a table `{name = "vlm", frames = 2}` or as the name alone. `name` may
    be `module:Object` or `file.py:Object`. The options are checked when the object is made.

    Args:
        name: The name.
        **options: The options of the object.

    Raises:
        OptionError: The name is empty or not a text.
    """

    __slots__ = ("name", "options")
    kind: ClassVar[str] = "part"
    kinds: ClassVar[str] = "parts"
    registry: ClassVar[Registry]
    may_be_nameless: ClassVar[bool] = False
    name: str
    options: Mapping[str, Any]

    def __init__(self, name: str, /, **options: Any) -> None:
        if not isinstance(name, str) or not (name or self.may_be_nameless):
            raise OptionError(f"name: expected the name of a {self.kind}, got {name!r}", "name")
        object.__setattr__(self, "name", name)
        set_options = {
            key.replace("-", "_"): str(value) if isinstance(value, Path) else value
            for key, value in options.items()
        }
        object.__setattr__(self, "options", set_options)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__} is frozen: make a copy with dataclasses.replace"
        )

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
        """Makes the configuration from a name or a table.

        Args:
            value: A name, a table with `name`, a configuration, or an object.
            path: The path of the value, for messages.

        Returns:
            The configuration. An object is returned unchanged.

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
                        f"{prefix}name is missing; name the {cls.kind}{given}", "name"
                    )
                raise OptionError(
                    f"{prefix}name: expected the name of a {cls.kind}, got {name!r}", "name"
                )
            return cls(name, **{str(key): option for key, option in table.items()})
        if value is None or isinstance(value, int | float | bytes | list | tuple):
            raise OptionError(
                f"{path or cls.kind}: expected the name of a {cls.kind} or a table, got a "
                f"{type(value).__name__}",
                path,
            )
        return value

    def mapping(self) -> dict[str, Any]:
        """Returns name and options as one table.

        Parts among the options become names or tables; objects are kept.
        """
        return {
            "name": self.name,
            **{key: _unwrapped(value) for key, value in self.options.items()},
        }

    def table(self) -> dict[str, Any]:
        """Returns the configuration as a TOML table."""
        return {"name": self.name, **{key: plain(value) for key, value in self.options.items()}}

    @classmethod
    def described(
        cls, part: Any, options: Mapping[str, Any], place: str = ""
    ) -> tuple[Any, dict[str, Any]]:
        """Separates a description into a name and options.

        Args:
            part: A name, a table with `name`, a configuration, or an object.
            options: Further options; those of a table take precedence.
            place: The path of the description, for messages.

        Returns:
            The name, or the object unchanged, and all options.

        Raises:
            OptionError: The table has no name.
            UsageError: There are options for an object.
        """
        if isinstance(part, cls):
            part = part.mapping()
        if isinstance(part, Mapping):
            table = dict(part)
            name = table.pop("name", None)
            if not isinstance(name, str) or not name:
                raise OptionError(
                    f"{place or cls.kind}.name: expected the name of a {cls.kind}, got {name!r}",
                    cls.kind,
                )
            return name, {**options, **table}
        if not isinstance(part, str) and options:
            raise UsageError(
                f"{place or cls.kind}: an existing object takes no options ({', '.join(options)})",
                parameters=(cls.kind,),
            )
        return part, dict(options)

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Lists the options of the object that a table describes.

        Args:
            table: The `name`, and other keys that determine the available options.

        Raises:
            UsageError: The name is unknown.
        """
        return list_options(cls.registry.maker(str(table.get("name"))))

    @classmethod
    def knows(cls, name: str) -> bool:
        """Tells whether a word can be a name.

        On the command line, a word that cannot be a name belongs to the next argument.
        """
        return True

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Lists the names whose objects have an option, for messages."""
        return [name for name in cls.registry.entries if option in cls.options_for({"name": name})]


def _unwrapped(value: Any) -> Any:
    if isinstance(value, PartConfig):
        return value.mapping() if value.options else value.name
    if isinstance(value, list | tuple):
        return [_unwrapped(inner) for inner in value]
    return value


def get_name(part: Any) -> Any:
    """Returns the name in a part's description: a name, a table or a configuration."""
    return part.get("name") if isinstance(part, Mapping) else getattr(part, "name", part)


def _remake(cls: type[PartConfig], name: str, options: dict[str, Any]) -> PartConfig:
    return cls(name, **options)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of run configurations: frozen dataclasses whose fields are checked against their
    annotations.

    Numbers may have bounds (`Annotated[int, msgspec.Meta(ge=1)]`). Paths become text, sequences
    become tuples, and a table becomes the nested configuration that the field's annotation names.
    The fields of a part `spec` stand among the others in tables, flags and the keywords of runs.

    Raises:
        OptionError: A value is not of its field's type.
    """

    def __post_init__(self) -> None:
        if part := spec_type(type(self)):
            object.__setattr__(self, "spec", part.read(self.spec))  # type: ignore[attr-defined]
        for name, option in config_options(type(self)).items():
            if name in vars(self):
                object.__setattr__(self, name, _checked(getattr(self, name), option))
        self.check()

    def check(self) -> None:
        """Checks options that depend on each other. Subclasses override it.

        Raises:
            UsageError: Some options cannot be combined.
        """

    @classmethod
    def read(cls, value: Any, path: str = "") -> Self:
        """Makes the configuration from a table.

        Args:
            value: A table with the fields as keys, or a configuration.
            path: The path of the table, for messages.

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
                there = f"; expected one of {', '.join(options)}" if len(options) < 40 else ""
                raise OptionError(
                    f"{prefix}{key}: unknown option{nearest(key, options)}{there}", key
                )
        # a missing option of a nested configuration is reported with its whole path
        for option in options.values():
            if option.required and is_config(inner_config(option.type)):
                table.setdefault(option.name, {})
        if missing := next(
            (o for o in options.values() if o.required and o.name not in table), None
        ):
            about = f". {missing.description}" if missing.description else ""
            raise OptionError(f"{prefix}{missing.name} is missing{about}", missing.name)
        try:
            return cls(**_with_spec(cls, table, lambda part, theirs: part.read(theirs)))
        except OptionError as error:
            raise OptionError(f"{prefix}{error}", error.option) from None

    @classmethod
    def normalized(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the table with the fields' names as keys, including nested tables.

        Subclasses override it to accept older and shorter forms.

        Args:
            table: A table of a file, or of flags.

        Returns:
            The table. A normalized table is returned equal.

        Raises:
            OptionError: The table has two forms of the same field.
        """
        normal = {str(key).replace("-", "_"): value for key, value in table.items()}
        for name, option in config_options(cls).items():
            inner = inner_config(option.type)
            if is_config(inner) and isinstance(below := normal.get(name), Mapping):
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
            **over: Fields that override those of the file.

        Raises:
            UsageError: The file cannot be read or is not such a configuration; the message names
                file and key.
        """
        try:
            return cls.read({**cls.normalized(load_table(path)), **over})
        except OptionError as error:
            raise OptionError(f"{path}: {error}", error.option) from None

    def copy_with(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed.

        Raises:
            OptionError: A value does not fit.
        """
        return replace(
            self,
            **_with_spec(type(self), changes, lambda _, their: self.spec.copy_with(**their)),  # type: ignore[attr-defined]
        )

    def table(self) -> dict[str, Any]:
        """Returns the configuration as a TOML table, without default values."""
        options = config_options(type(self))
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        spec = values.pop("spec").table() if spec_type(type(self)) else {}
        return spec | {
            name: plain(value)
            for name, value in values.items()
            if value is not None and value != options[name].default
        }


def load_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the table of a TOML or JSON file.

    Returns:
        The table, without null values. Hyphens in its own keys become underscores; keys of nested
        tables are unchanged.

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
    """Merges two tables; a part with another name replaces the part of the first table.

    Args:
        table: The first table.
        over: The second table, whose keys take precedence.

    Returns:
        A new table; tables that occur in both are merged.
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
    """Returns the configuration class in a field's annotation, or None for a plain value.

    The class may be the only type, optional, or part of a union.
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
    """Returns the configuration class if a field's annotation is a sequence of them."""
    if get_origin(hint) is Annotated:
        return _element(get_args(hint)[0])
    inner = get_args(hint)[0] if get_origin(hint) is Sequence else None
    return inner if isinstance(inner, type) and issubclass(inner, Config) else None


def is_config(inner: type[PartConfig] | type[Config] | None) -> TypeGuard[type[Config]]:
    """Returns whether the class has fields of its own, unlike a part that is chosen by name."""
    return inner is not None and issubclass(inner, Config) and not hasattr(inner, "chosen")


def plain(value: Any) -> Any:
    """Returns the value as plain TOML or JSON."""
    if isinstance(value, PartConfig | Config):
        return value.table()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, os.PathLike) else value


def config_options(cls: type[Config]) -> Mapping[str, Option]:
    """Returns the fields of a configuration as options, in order, and those of a part `spec`."""
    return list_options(cls)


def _with_spec(
    cls: type[Config],
    table: Mapping[str, Any],
    make: Callable[[type[Config], dict[str, Any]], Config],
) -> dict[str, Any]:
    """Returns the table with a part `spec` that is made of its fields among them."""
    if (part := spec_type(cls)) is None or "spec" in table:
        return dict(table)
    theirs = config_options(part)
    own = {name: value for name, value in table.items() if name not in theirs}
    return {**own, "spec": make(part, {k: v for k, v in table.items() if k in theirs})}


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
    if isinstance(value, str | os.PathLike) and _takes_paths(option.type):
        value = (value,)
    return _without_paths(
        read_value(_without_paths(value), replace(option, type=_without_path_types(option.type)))
    )


@cache
def _takes_paths(hint: Any) -> bool:
    """Returns whether a field takes texts or paths, so that a single one is a list of one."""
    if get_origin(hint) is Annotated:
        return _takes_paths(get_args(hint)[0])
    inner = get_args(hint)
    if get_origin(hint) is Sequence:
        return bool({str, Path} & {*get_args(inner[0]), inner[0]})
    return (
        get_origin(hint) in (Union, UnionType)
        and str not in inner
        and any(map(_takes_paths, inner))
    )


@cache
def _without_path_types(hint: Any) -> Any:
    """Returns the annotation with text in place of paths.

    msgspec does not check unions of text and paths, and the values are text here.
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
    """Returns the options; options without a name belong to the field's default part."""
    if (
        isinstance(value, Mapping)
        and "name" not in value
        and isinstance(name := get_name(default), str)
    ):
        return {"name": name, **value}
    return value


def _without_paths(value: Any) -> Any:
    """Returns the value with paths as text and lists as tuples.

    Configurations then compare and serialise the same however they were made.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple | range) and not hasattr(value, "_fields"):
        return tuple(_without_paths(inner) for inner in value)
    return value
