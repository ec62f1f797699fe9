"""Derives a command line from a configuration: one flag per field, nested fields by path.

`--judge.frames 2` sets the field `frames` of the field `judge`. The end of a path suffices if it is
unambiguous: `--frames 2`. A part made by name (`--judge vlm`) has the options of the named class.
The available flags therefore depend on the names given on the command line or in the file before
it.

argparse parses the arguments. cyclopts 5.4 and tyro 1.0 were tried with a command of sixty options:
importing them takes as long as six or seven starts of Python (65 to 70 ms; argparse 9 ms), and
parsing or help another 35 to 100 ms, where the whole of `prill score --help` takes eleven starts.
Neither supports flags that depend on a name given before, so the table below would still have been
necessary.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin

from prill.cli.layout import FlagLayout as FlagLayout
from prill.cli.layout import Switches as Switches
from prill.config.registry import Option, OptionError, load_object, nearest, read_value
from prill.config.toml import parse_toml
from prill.config.values import (
    Config,
    PartConfig,
    config_options,
    get_name,
    inner_config,
    load_table,
    merged,
)
from prill.errors import PrillError, UsageError
from prill.protocols import Captioner, Evaluator, LanguageModel

_WIDTH = 140
# Parts nested in other parts, by the type of an option.
_PARTS: dict[Any, str] = {
    LanguageModel: "prill.models.registry:ModelConfig",
    Captioner: "prill.captioner.registry:CaptionerConfig",
    Evaluator: "prill.evaluators.registry:JudgeConfig",
}


@dataclass(frozen=True)
class Flag:
    """One option of a command: the path to its field, the option itself, and its flags.

    `shared`: a model option given next to the options of the part that calls the model. `depth`:
    the number of leading names of the path that belong to enclosing configurations; the help omits
    them if the rest is unambiguous. `family`: the option names one of several configurations.
    """

    path: tuple[str, ...]
    option: Option
    part: type[PartConfig] | None = None
    shared: bool = False
    names: tuple[str, ...] = ()
    family: bool = False
    depth: int = 0

    @property
    def title(self) -> str:
        """Returns the heading of its group in the help."""
        if self.depth and self.path[self.depth] == "model":  # not the run's model
            return self.path[self.depth - 1]
        if self.part is not None or self.family or len(self.path) > self.depth + 1:
            return self.path[self.depth]
        return self.path[self.depth - 1] if self.depth else ""

    @property
    def shown(self) -> str:
        """Returns the flag shown in the help."""
        end = "--" + ".".join(self.path[self.depth :]).replace("_", "-")
        return end if end in self.names else self.names[-1]

    @property
    def dotted(self) -> str:
        """Returns the whole path as a flag."""
        return "--" + ".".join(self.path).replace("_", "-")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations that raises UsageError instead of exiting."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": WideHelp, **settings})

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(message)


class WideHelp(argparse.RawDescriptionHelpFormatter):
    """A help formatter with one line per option if the terminal is wide enough, and compact
    groups.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=_WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Returns one long flag, and the short one if there is one; hidden aliases also work."""
        shown = getattr(action, "shown", None)
        if shown is None:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {self._format_args(action, str(action.metavar))}"
        return f"{', '.join(shown)}{value}"

    def format_help(self) -> str:
        """Returns the help text."""
        usage, _, rest = super().format_help().partition("\n\n")
        return f"{usage}\n\n{re.sub(chr(10) * 2 + r'(?=[a-z])', chr(10), rest)}"


@dataclass(frozen=True)
class Derived:
    """The parser of a command for one command line, whose names determine the available options."""

    parser: argparse.ArgumentParser
    flags: Mapping[str, Flag]
    file: Mapping[str, Any]
    source: str | None
    type: type[Config]
    ambiguous: Mapping[str, tuple[str, ...]]
    positional: Sequence[str] = ()
    given: dict[str, Any] = field(default_factory=dict)

    def read(self, argv: Sequence[str]) -> tuple[Config, Switches]:
        """Parses the arguments, after the file before them, into a configuration.

        Raises UsageError that names the flag or key.
        """
        end = argv.index("--") if "--" in argv else len(argv)
        given, others = self.parser.parse_known_args(list(argv[:end]))
        unknown = [word for word in others if word.startswith("-") and word != "-"]
        # The token after an unknown flag may be its value.
        arguments = others[: others.index(unknown[0])] if unknown else [*others, *argv[end + 1 :]]
        positions = self._place_arguments(arguments)
        over: dict[str, Any] = {}
        for dest, flag in self.flags.items():
            if (value := positions.get(dest) or getattr(given, dest, None)) not in (None, []):
                _put(over, flag.path, _read(value, flag))
        self.given.update(over)
        if unknown:
            self._refuse(unknown, over)
        table = merged(self.file, over)
        try:
            config = self.type.read(table)
        except OptionError as error:
            raise self._placed(error, over) from None
        return config, Switches(getattr(given, "json", False), getattr(given, "dry_run", False))

    def _place_arguments(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Assigns positional arguments to fields; a list takes what later fields leave.

        Raises UsageError.
        """
        names, arguments = list(self.positional), list(arguments)
        places: dict[str, Any] = {}
        while names and arguments:
            name = names.pop(0)
            if _several(self.flags[name].option.type):
                if file := next(
                    (argument for argument in arguments if argument.endswith(".toml")), None
                ):
                    raise UsageError(
                        f"{file}: unexpected argument; a file of options must be the first argument"
                    )
                count = max(1, len(arguments) - len(names))
                places[name], arguments = arguments[:count], arguments[count:]
            else:
                places[name] = arguments.pop(0)
        if arguments:
            raise UsageError(f"{' '.join(arguments)}: unexpected arguments")
        return places

    def _refuse(self, unknown: Sequence[str], over: Mapping[str, Any]) -> NoReturn:
        """Raises UsageError for unknown flags."""
        name = unknown[0].partition("=")[0]
        if name in self.ambiguous:
            raise UsageError(f"{name}: ambiguous option; write {' or '.join(self.ambiguous[name])}")
        names = sorted(
            {name for flag in self.flags.values() for name in flag.names}
            | {"--json", "--dry-run", "--help"}
        )
        hyphened = name.replace("_", "-")  # options have underscores in Python and in files
        if hyphened not in names and (others := self._others(name, over)) is not None:
            raise UsageError(f"{name}: {others}")
        parts = [
            flag
            for flag in self.flags.values()
            if flag.part is not None and flag.option.required and len(flag.path) == 1
        ]
        unnamed = next(
            (flag.dotted for flag in parts if flag.path[0] not in {**self.file, **over}), None
        )
        more = f"; {unnamed}, whose options depend on its name, is missing, too" if unnamed else ""
        raise UsageError(
            f"{name}: unknown option{nearest(hyphened, names)}{more}; --help lists all options"
        )

    def _others(self, flag: str, over: Mapping[str, Any]) -> str | None:
        """Returns a message that a part lacks an option, or has no name yet, with the alternatives
        that have it.

        None: no part has the option.
        """
        *path, option = flag.lstrip("-").replace("-", "_").split(".")
        ones = [
            one
            for one in self.flags.values()
            if one.part is not None and (not path or path[-1] == one.path[-1])
        ]
        for one in [one for one in ones if list(one.path) == path] or ones:
            part = one.part
            assert part is not None
            table: Any = merged(self.file, over)
            for name in one.path:
                table = table.get(name) if isinstance(table, Mapping) else None
            named = get_name(table)
            if named is None:
                named = get_name(one.option.default)
            if named == "" and not part.may_be_nameless:
                raise UsageError(f"{_get_flag(one)}: expected the name of a {part.kind}, got ''")
            names = part.names_with(option)
            able = f"; {part.kinds} with this option: {', '.join(names)}" if names else ""
            if isinstance(named, str) and able:
                return f"{part.kind} {named!r} has no such option{able}"
            if path and not isinstance(named, str):
                return f"{_get_flag(one)} is missing, and the options depend on its name{able}"
        return None

    def _placed(self, error: OptionError, over: Mapping[str, Any]) -> UsageError:
        """Returns the error with the flag if the value came from the command line, else with its
        position in the file.
        """
        path = str(error).partition(":")[0].split(" ")[0]
        if self.source is not None and not _has(over, path.split(".")):
            return UsageError(f"{self.source}: {error}", parameters=error.parameters)
        if str(error).startswith(f"{path} is missing"):
            return UsageError(f"{self.get_flag(path)}{str(error)[len(path) :]}")
        return error

    def explain(self, error: PrillError) -> str:
        """Adds the file of the key, or the flags, to an error message of the run."""
        path = re.split(r"[:\s\[]", str(error), maxsplit=1)[0].split(".")
        in_file = (
            isinstance(error, UsageError) and path[0] in self.file and not _has(self.given, path)
        )
        return f"{self.source}: {error}" if in_file else f"{error}{self.flags_for(error)}"

    def flags_for(self, error: PrillError) -> str:
        """Returns the flags of an error's parameters, in brackets; library errors name parameters
        only.
        """
        parameters = error.parameters if isinstance(error, UsageError) else ()
        flags = [
            flag
            for path in parameters
            if (flag := self.get_flag(path)) not in (path, str(error).partition(" ")[0])
        ]
        return f" ({', '.join(flags)})" if flags else ""

    def get_flag(self, path: str) -> str:
        """Returns the flags of a field, by its dotted path or last name; the path itself if it has
        none.
        """
        for flag in self.flags.values():
            if ".".join(flag.path) == path:
                return _get_flag(flag)
        return next(
            (_get_flag(flag) for flag in self.flags.values() if flag.path[-1] == path), path
        )


def _get_flag(flag: Flag) -> str:
    """Returns the flag of an option; for a boolean that is on, the flag that turns it off."""
    name = flag.names[0] if flag.names else flag.path[-1].upper()
    off = flag.option.default is True and _is_bool(flag.option.type) and name.startswith("--")
    return f"--no-{name.lstrip('-')}" if off else name


def derive(
    type: type[Config],
    argv: Sequence[str],
    layout: FlagLayout,
    *,
    prog: str,
    description: str = "",
    examples: Sequence[str] = (),
    epilog: str = "",
    dry_run: bool = False,
) -> tuple[Derived, list[str]]:
    """Makes the parser for a configuration's command line.

    The second value holds the arguments that remain after a leading file.

    Args:
        type: The configuration class.
        argv: The arguments; `FILE.toml` may come first, or `FILE.json` if no other file can.
        layout: Exceptions from the derived command line.
        prog: The command, such as `prill score`.
        description: A sentence that describes the command.
        examples: Example commands for the top of the help.
        epilog: The text at the end of the help.
        dry_run: Whether the command supports a dry run.

    Raises:
        UsageError: The file cannot be read, or a name is unknown.
    """
    argv, file, source = list(argv), {}, None
    if argv and argv[0].endswith(_list_files(type, layout)):
        source = argv.pop(0)
        try:
            file = type.normalized(load_table(source))
        except OptionError as error:
            raise UsageError(f"{source}: {error}", parameters=error.parameters) from None
    layout = _without_unnamed(type, argv, layout)
    text = "\n".join((description, *(f"  {example}" for example in examples)))
    parser = Parser(prog=prog, description=text, epilog=epilog or None, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="Show this help message and exit.")
    parser.usage = _usage(prog, type, layout)
    try:
        flags = list(_flags(config_options(type), (), _named(type, argv, layout, file), file))
    except UsageError as error:
        if str(error).partition(":")[0].partition(".")[0] in file:
            raise UsageError(f"{source}: {error}") from None
        raise
    named, ambiguous = _with_names(flags, layout)
    by_dest: dict[str, Flag] = {}
    groups: dict[str, Any] = {}
    for flag in named:
        dest = "__".join(flag.path)
        by_dest[dest] = flag
        title = flag.title
        group = groups.setdefault(title, parser.add_argument_group(title) if title else parser)
        _add(group, flag, dest, layout)
    parser.add_argument("--json", action="store_true", help="Print the result as JSON on stdout.")
    if dry_run:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="Check everything, print the expected work, calls and cost, and exit.",
        )
    return Derived(
        parser,
        by_dest,
        file,
        source,
        type,
        ambiguous,
        [name.replace(".", "__") for name in layout.positional],
    ), argv


def _without_unnamed(type: type[Config], argv: Sequence[str], layout: FlagLayout) -> FlagLayout:
    """Drops the first positional if it is optional and the first argument is a file instead of a
    name.
    """
    first = config_options(type)[layout.positional[0]] if layout.positional else None
    part = inner_config(first.type) if first is not None and not first.required else None
    if (
        part is None
        or not issubclass(part, PartConfig)
        or not argv
        or part.knows(argv[0])
        or not Path(argv[0]).exists()
    ):
        return layout
    return replace(layout, positional=layout.positional[1:])


def _list_files(type: type[Config], layout: FlagLayout) -> tuple[str, ...]:
    """Returns the suffixes of configuration files; .json only if no other file can come first."""
    first = config_options(type)[layout.positional[0]] if layout.positional else None
    return (
        (".toml", ".json") if first is None or inner_config(first.type) is not None else (".toml",)
    )


def _usage(prog: str, type: type[Config], layout: FlagLayout) -> str:
    options = config_options(type)
    stated = []
    for name in layout.positional:
        word = f"{layout.metavar((name,)) or name.upper()}{' ...' if _several(options[name].type) else ''}"  # noqa: E501
        stated.append(word if options[name].required else f"[{word}]")
    needed = [
        (
            f"{layout.short.get(name, '--' + name.replace('_', '-'))} "
            f"{layout.metavar((name,)) or name.upper()}"
        )
        for name in _needed(type)
        if name not in layout.positional and name not in layout.hidden
    ]
    return " ".join((prog, "[FILE.toml]", *stated, *needed, "[options]"))


def _needed(type: type[Config]) -> Iterator[str]:
    """Yields the names of required fields, including those of nested configurations."""
    for name, option in config_options(type).items():
        inner = inner_config(option.type)
        if (
            option.required
            and inner is not None
            and issubclass(inner, Config)
            and not hasattr(inner, "chosen")
        ):
            yield from _needed(inner)
        elif option.required:
            yield name


def _named(
    type: type[Config], argv: Sequence[str], layout: FlagLayout, file: Mapping[str, Any]
) -> dict[str, str]:
    """Returns the part names given on the command line or in the file, by dotted path."""
    names: dict[str, str] = {}
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            path = flag[2:].replace("-", "_")
            if equals:
                names[path] = value
            elif index + 1 < len(argv):
                names.setdefault(path, argv[index + 1])
    first = layout.positional[0] if layout.positional else None
    if (
        first is not None
        and argv
        and not argv[0].startswith("-")
        and inner_config(config_options(type)[first].type)
    ):
        names[first] = argv[0]
    return names


def _flags(
    options: Mapping[str, Option],
    prefix: tuple[str, ...],
    names: Mapping[str, str],
    table: Mapping[str, Any],
    depth: int = 0,
) -> Iterator[Flag]:
    for option in options.values():
        path = (*prefix, option.name)
        inner = inner_config(option.type)
        below = table.get(option.name)
        if inner is None:
            yield Flag(path, option, depth=depth)
        elif issubclass(inner, PartConfig):
            yield from (
                replace(flag, depth=depth)
                for flag in _part_flags(inner, path, option, names, below)
            )
        # a family: one of several configurations, by name
        elif (options_named := getattr(inner, "options_named", None)) is not None:
            yield Flag(path, option, family=True, depth=depth)
            name = names.get(".".join(path)) or (
                below.get("name") if isinstance(below, Mapping) else below
            )
            if isinstance(name, str):
                yield from _flags(
                    options_named(name),
                    path,
                    names,
                    below if isinstance(below, Mapping) else {},
                    depth,
                )
        else:
            yield from _flags(
                config_options(inner),
                path,
                names,
                below if isinstance(below, Mapping) else {},
                depth + 1,
            )


def _part_flags(
    part: type[PartConfig],
    path: tuple[str, ...],
    option: Option,
    names: Mapping[str, str],
    below: Any,
) -> Iterator[Flag]:
    yield Flag(path, option, part)
    table = (
        dict(below)
        if isinstance(below, Mapping)
        else {"name": below}
        if isinstance(below, str)
        else {}
    )
    name = _name_given(path, names)
    if not table:
        default = get_name(option.default)
        table = {"name": default} if isinstance(default, str) else {}
    if name is not None:
        table = {**(table if table.get("name") == name else {}), "name": name}
    if not isinstance(table.get("name"), str):
        if part.kind != "model":
            return
        table["name"] = "NAME"  # the options of a model at an endpoint, for any model name
    if (model := _name_given((*path, "model"), names)) is not None:
        table["model"] = model
    elif part.kind != "model" and "model" not in table and "model" in names:
        table["model"] = names["model"]
    try:
        own = part.options_for(table)
    except UsageError as error:
        if name is not None:  # the arguments name it
            raise
        raise UsageError(f"{'.'.join(path)}: {error}") from None
    for inner in own.values():
        if (kind := _part_type(inner.type)) is not None:
            if not _several(inner.type):
                yield from _part_flags(
                    kind, (*path, inner.name), inner, names, table.get(inner.name)
                )
            continue
        yield Flag((*path, inner.name), inner)
    for inner in part.model_options_for(table).values():
        if inner.name not in own:
            yield Flag((*path, inner.name), inner, shared=True)


def _name_given(path: tuple[str, ...], names: Mapping[str, str]) -> str | None:
    """Returns the name of a part.

    It is found by the whole path or by a suffix of it with at least two names.
    """
    for start in range(len(path)):
        if (start == 0 or len(path) - start > 1 or path[-1] != "model") and (
            name := names.get(".".join(path[start:]))
        ):
            return name
    return None


def _part_type(hint: Any) -> type[PartConfig] | None:
    inner = inner_config(hint)
    if inner is not None and issubclass(inner, PartConfig):
        return inner
    bare = _bare(hint)
    reference = next(
        (home for kind, home in _PARTS.items() if kind is bare or kind in get_args(bare)), None
    )
    return None if reference is None else load_object(reference)


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    args = [arg for arg in get_args(hint) if arg is not type(None)]
    if len(args) == 1 and get_origin(hint) in (Union, type(int | str)):
        return _bare(args[0])
    return hint


def _several(hint: Any) -> bool:
    return (
        get_origin(_bare(hint)) in (list, tuple, Sequence)
        or getattr(get_origin(_bare(hint)), "__name__", "") == "Sequence"
    )


def _names(word: str) -> list[str]:
    return [name.strip() for name in word.split(",")]


def _with_names(
    flags: Sequence[Flag], layout: FlagLayout
) -> tuple[list[Flag], dict[str, tuple[str, ...]]]:
    """Returns the flags with all their spellings, and the short flags that are ambiguous."""
    ends: dict[str, list[Flag]] = {}
    for flag in flags:
        if {".".join(flag.path), flag.path[0]} & layout.whole:
            continue
        for start in range(1, len(flag.path)):
            ends.setdefault(".".join(flag.path[start:]), []).append(flag)
    full_names = {".".join(flag.path) for flag in flags}
    short: dict[tuple[str, ...], list[str]] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for end, meant in ends.items():
        if end in full_names:
            continue
        own = [flag for flag in meant if not flag.shared] or meant
        least = min(len(flag.path) for flag in own)
        nearest_flags = [flag for flag in own if len(flag.path) == least]
        if len(nearest_flags) == 1:
            short.setdefault(nearest_flags[0].path, []).append(f"--{end.replace('_', '-')}")
        else:
            ambiguous[f"--{end.replace('_', '-')}"] = tuple(flag.dotted for flag in nearest_flags)
    named = []
    for flag in flags:
        dotted = ".".join(flag.path)
        if dotted in layout.positional:
            names: tuple[str, ...] = ()
        else:
            ones = [layout.short[dotted]] if dotted in layout.short else []
            renamed = layout.renamed.get(dotted)
            names = (
                *ones,
                *([renamed] if renamed else []),
                *sorted(short.get(flag.path, ()), key=len),
                flag.dotted,
            )
        named.append(replace(flag, names=tuple(dict.fromkeys(names))))
    counts = Counter(name for flag in named for name in flag.names)
    assert not [name for name, count in counts.items() if count > 1], counts
    return named, ambiguous


def _add(group: Any, flag: Flag, dest: str, layout: FlagLayout) -> None:
    option, dotted = flag.option, ".".join(flag.path)
    text = option.description
    unsaid = isinstance(option.default, bool | None) or option.default in ((), "")
    if not option.required and not unsaid and "default" not in text:
        text += f" (default {_shown(option.default)})"
    hidden = (
        bool({dotted, flag.path[-1]} & layout.hidden)
        or flag.shared
        or (flag.path[1:-1] and flag.path[-2].endswith("model"))
    )
    text = argparse.SUPPRESS if hidden else text.replace("%", "%%")
    metavar = layout.metavar(flag.path) or _metavar(flag)
    if not flag.names:
        # Added for the help only, because argparse cannot place an argument after a flag.
        # `Derived.read` places them.
        group.add_argument(dest, nargs=argparse.SUPPRESS, metavar=metavar, help=text)
        return
    settings: dict[str, Any] = {"dest": dest, "help": text, "default": None}
    shown = [name for name in flag.names if not name.startswith("--")] + [flag.shown]
    if _is_bool(option.type):
        settings["action"] = argparse.BooleanOptionalAction
        if option.default is True:
            shown = [f"--[no-]{flag.shown[2:]}"]
    else:
        settings["metavar"] = metavar
        is_list = len(flag.path) == 1 and _several(option.type)
        # Names may be joined by commas, which paths may contain.
        if is_list and get_args(_bare(option.type))[:1] == (str,):
            settings |= {
                "action": "extend",
                "type": _names,
                "metavar": layout.metavar(flag.path) or "A,B",
            }
        elif is_list:
            settings |= {"action": "extend", "nargs": "+"}
    action = group.add_argument(*flag.names, **settings)
    action.shown = shown
    if bool in get_args(_bare(option.type)):  # a boolean, or a value
        none = [f"--no-{name[2:]}" for name in flag.names if name.startswith("--")]
        group.add_argument(
            *none,
            dest=dest,
            action="store_const",
            const=False,
            default=None,
            help=argparse.SUPPRESS,
        )


def _is_bool(hint: Any) -> bool:
    return _bare(hint) is bool


def _metavar(flag: Flag) -> str:
    bare = _bare(flag.option.type)
    if flag.part is not None or flag.family:
        return "NAME"
    if get_args(bare) and all(isinstance(one, str) for one in get_args(bare)):
        return "|".join(map(str, get_args(bare)))
    types = {one for one in (get_args(bare) or (bare,)) if isinstance(one, type)}
    if types & {int, float} and str not in types:
        return "N"
    return flag.path[-1].upper().replace("_", "-")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return (
        f"{value:g}"
        if isinstance(value, float)
        else value.name
        if isinstance(value, PartConfig)
        else str(value)
    )


def _read(value: Any, flag: Flag) -> Any:
    """Parses the value of a flag to the type of its option. Raises OptionError that names the
    flag.
    """
    if flag.part is not None or flag.family or isinstance(value, bool):
        return value
    option = flag.option
    if (
        isinstance(bare := _bare(option.type), type)
        and bare.__module__ != "builtins"
        and bare is not Path
    ):
        # a string that the part's factory interprets, such as a cache folder
        return value
    text = _parsed(value, option)
    try:
        return read_value(text, option, lax=True)
    except OptionError as error:
        reason = str(error).partition(": ")[2]
        raise UsageError(f"{flag.names[-1] if flag.names else option.name}: {reason}") from None


def _parsed(value: Any, option: Option) -> Any:
    """Parses text from the command line: lists as JSON or comma-separated, tables as JSON or
    KEY=VALUE.
    """
    hint = _bare(option.type)
    kinds = {get_origin(_bare(one)) or _bare(one) for one in (get_args(hint) or (hint,))} | {
        get_origin(hint) or hint
    }
    if not isinstance(value, str):
        return value
    if value[:1] in "[{" and value[:1]:
        try:
            return json.loads(value)
        except ValueError:
            try:
                return parse_toml(f"value = {value}")["value"]
            except ValueError:
                return value
    names = {getattr(kind, "__name__", "") for kind in kinds}
    if names & {"dict", "Mapping"} and "=" in value:
        key, _, inner = value.partition("=")
        return {key: inner}
    if names & {"list", "tuple", "Sequence"} and str not in kinds:
        return [part.strip() for part in value.split(",")]
    return value


def _put(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets a value in nested tables; a name in its place becomes a table with that name."""
    *above, last = path
    for name in above:
        below = table.get(name, {})
        table[name] = below if isinstance(below, dict) else {"name": below}
        table = table[name]
    below = table.get(last)
    if isinstance(below, dict) and not isinstance(value, Mapping):
        below["name"] = value
    else:
        table[last] = value


def _has(table: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return isinstance(table, str)
        table = table[name]
    return True
