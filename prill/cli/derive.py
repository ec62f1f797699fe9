"""Derives a command line from a configuration: one flag per field, named by the field's path.

`--judge.frames 2` sets the field `frames` of the field `judge`. A command may leave out the names
of some parts: `--tasks` is `environment.tasks` for `prill rollout`. A part made by name
(`--judge vlm`) has the options of the named class. The available flags therefore depend on the
names given on the command line or in the file before it.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from prill.cli.layout import FlagLayout, Switches
from prill.config.registry import (
    Option,
    OptionError,
    bare_type,
    is_sequence,
    load_object,
    nearest,
    read_value,
)
from prill.config.toml import parse_toml
from prill.config.values import (
    Config,
    PartConfig,
    config_options,
    get_name,
    inner_config,
    is_config,
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
    """One option of a command: the path to its field, the option itself, and its name.

    `part` is the kind of part that it names. `family`: it names one of several configurations. An
    argument without a flag has no name.
    """

    path: tuple[str, ...]
    option: Option
    name: str
    part: type[PartConfig] | None = None
    family: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the flags: `-o` for the output, and `--NAME`."""
        return ("-o",) * (self.name == "output") + (f"--{self.name}",) * bool(self.name)

    @property
    def dotted(self) -> str:
        """Returns the whole path as text."""
        return ".".join(self.path)

    @property
    def title(self) -> str:
        """Returns the heading of its group in the help."""
        return self.path[0] if self.part or self.family or len(self.path) > 1 else ""

    @property
    def shown(self) -> str:
        """Returns the flag for messages; for a boolean that is on, the one that turns it off."""
        off = self.option.default is True and bare_type(self.option.type) is bool and self.name
        return f"--no-{self.name}" if off else (*self.names, self.path[-1].upper())[0]


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
        for dest, flag in self.flags.items():
            if (value := positions.get(dest) or getattr(given, dest, None)) not in (None, []):
                _put(self.given, flag.path, _read(value, flag))
        table = merged(self.file, self.given)
        if unknown:
            self._refuse(unknown[0].partition("=")[0], table)
        try:
            config = self.type.read(table)
        except OptionError as error:
            raise self._placed(error) from None
        return config, Switches(given.json, getattr(given, "dry_run", False))

    def _place_arguments(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Assigns positional arguments to fields; a list takes what later fields leave.

        Raises UsageError.
        """
        names, arguments = list(self.positional), list(arguments)
        places: dict[str, Any] = {}
        while names and arguments:
            name = names.pop(0)
            if is_sequence(self.flags[name].option.type):
                if files := [one for one in arguments if one.endswith(".toml")]:
                    raise UsageError(
                        f"{files[0]}: unexpected argument; a file of options must be the first "
                        "argument"
                    )
                count = max(1, len(arguments) - len(names))
                places[name], arguments = arguments[:count], arguments[count:]
            else:
                places[name] = arguments.pop(0)
        if arguments:
            raise UsageError(f"{' '.join(arguments)}: unexpected arguments")
        return places

    def _refuse(self, flag: str, table: Mapping[str, Any]) -> NoReturn:
        """Raises UsageError for an unknown flag."""
        names = ["--json", "--dry-run", "--help"]
        names += [f"--{one.name}" for one in self.flags.values() if one.name]
        # options have underscores in Python and in files
        if (name := flag.replace("_", "-")) in names:
            raise UsageError(f"{flag}: unknown option{nearest(name, names)}")
        dotted = self.flags.get(name[2:].replace("-", "_"))
        if dotted and not dotted.name:
            raise UsageError(f"{flag}: unknown option; give {dotted.shown} without a flag")
        ends = [f"--{dotted.name}"] if dotted else []
        ends = ends or [one for one in names if one.endswith(f".{name.lstrip('-')}")]
        if ends:
            least = min(one.count(".") for one in ends)
            ends = [one for one in ends if one.count(".") == least]
            raise UsageError(f"{flag}: unknown option; write {' or '.join(ends)}")
        if (others := self._others(flag, table)) is not None:
            raise UsageError(f"{flag}: {others}")
        unnamed = [
            one.shown
            for one in self.flags.values()
            if one.part and one.option.required and one.path[0] not in table
        ]
        more = f"; {unnamed[0]}, whose options depend on its name, is missing" if unnamed else ""
        raise UsageError(
            f"{flag}: unknown option{nearest(name, names)}{more}; --help lists all options"
        )

    def _others(self, flag: str, table: Mapping[str, Any]) -> str | None:
        """Returns a message that a part lacks an option, or has no name yet, with the alternatives
        that have it.

        None: no part has the option.
        """
        above, _, option = flag.lstrip("-").replace("-", "_").rpartition(".")
        for one in self.flags.values():
            if one.part is None or (above and above != one.name.replace("-", "_")):
                continue
            part: Any = table
            for name in one.path:
                part = part.get(name) if isinstance(part, Mapping) else None
            named = get_name(one.option.default if part is None else part)
            if named == "" and not one.part.may_be_nameless:
                raise UsageError(f"{one.shown}: expected the name of a {one.part.kind}, got ''")
            names = one.part.names_with(option)
            if named in names:
                return (
                    f"{option} of {one.part.kind} {named!r} cannot be set here; write both in a "
                    f"file, such as {named}.toml, and give --{one.name} {named}.toml"
                )
            able = f"; {one.part.kinds} with this option: {', '.join(names)}" if names else ""
            if isinstance(named, str) and able:
                return f"{one.part.kind} {named!r} has no such option{able}"
            if above and not isinstance(named, str):
                return f"{one.shown} is missing, and the options depend on its name{able}"
        return None

    def _placed(self, error: OptionError) -> UsageError:
        """Returns the error with the flag if the value came from the command line, else with its
        position in the file.
        """
        path = str(error).partition(":")[0].split(" ")[0]
        if self.source is not None and not _has(self.given, path.split(".")):
            return UsageError(f"{self.source}: {error}", parameters=error.parameters)
        if str(error).startswith(f"{path} is missing"):
            return UsageError(f"{self.get_flag(path)}{str(error)[len(path) :]}")
        return error

    def explain(self, error: PrillError) -> str:
        """Adds the file of the key to an error message of the run, or in brackets the flags of the
        error's parameters.
        """
        if not isinstance(error, UsageError):
            return str(error)
        path = re.split(r"[:\s\[]", str(error), maxsplit=1)[0].split(".")
        if path[0] in self.file and not _has(self.given, path):
            return f"{self.source}: {error}"
        said = {*error.parameters, str(error).partition(" ")[0]}
        flags = [flag for flag in map(self.get_flag, error.parameters) if flag not in said]
        return f"{error} ({', '.join(flags)})" if flags else str(error)

    def get_flag(self, path: str) -> str:
        """Returns the flag of a field, by its dotted path or last name; the path itself if it has
        none.
        """
        ends = (flag for flag in self.flags.values() if flag.path[-1] == path)
        return flag.shown if (flag := self.flags.get(path) or next(ends, None)) else path


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
    if argv and _is_config(type, argv[0], layout):
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
        flags = list(_Flags(layout, _named(type, argv, layout)).of(config_options(type), (), file))
    except UsageError as error:
        if str(error).partition(":")[0].partition(".")[0] in file:
            raise UsageError(f"{source}: {error}") from None
        raise
    assert len({flag.name or flag.path for flag in flags}) == len(flags), "two flags of one name"
    groups: dict[str, Any] = {"": parser}
    for flag in flags:
        if flag.title not in groups:
            groups[flag.title] = parser.add_argument_group(flag.title)
        _add(groups[flag.title], flag, layout)
    parser.add_argument("--json", action="store_true", help="Print the result as JSON on stdout.")
    if dry_run:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="Check everything, print the expected work, calls and cost, and exit.",
        )
    by_path = {flag.dotted: flag for flag in flags}
    return Derived(parser, by_path, file, source, type, layout.positional), argv


def _first(type: type[Config], layout: FlagLayout) -> tuple[Option | None, Any]:
    """Returns the first argument's option, and the kind of part that it names."""
    option = config_options(type)[layout.positional[0]] if layout.positional else None
    return option, option and inner_config(option.type)


def _without_unnamed(type: type[Config], argv: Sequence[str], layout: FlagLayout) -> FlagLayout:
    """Drops the first positional if it is optional and the first argument is a file instead of a
    name.
    """
    option, part = _first(type, layout)
    if not argv or not part or option is None or option.required:
        return layout
    if not issubclass(part, PartConfig) or part.knows(argv[0]) or not Path(argv[0]).exists():
        return layout
    return replace(layout, positional=layout.positional[1:])


def _is_config(type: type[Config], path: str, layout: FlagLayout) -> bool:
    """Returns whether the first argument is a file of options: TOML that is no judge's page; or,
    where no other file can come first, JSON whose keys are for the most part options.
    """
    if path.endswith(".toml"):
        from prill.evaluators.page import is_page

        return not is_page(path)
    option, part = _first(type, layout)
    if not path.endswith(".json") or (option is not None and part is None):
        return False
    if option is None or option.required:
        return True
    try:
        value = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return True  # reported as a configuration
    known = value.keys() & config_options(type).keys() if isinstance(value, dict) else ()
    return isinstance(value, dict) and 2 * len(known) > len(value)


def _usage(prog: str, type: type[Config], layout: FlagLayout) -> str:
    options = config_options(type)
    stated = []
    for name in layout.positional:
        word = f"{name.upper()}{' ...' if is_sequence(options[name].type) else ''}"
        stated.append(word if options[name].required else f"[{word}]")
    needed = [
        f"{'-o' if name == 'output' else '--' + name.replace('_', '-')} {name.upper()}"
        for name in _needed(type)
        if name not in layout.positional and name not in layout.hidden
    ]
    return " ".join((prog, "[FILE.toml]", *stated, *needed, "[options]"))


def _needed(type: type[Config]) -> Iterator[str]:
    """Yields the names of required fields, including those of nested configurations."""
    for name, option in config_options(type).items():
        inner = inner_config(option.type)
        if option.required and is_config(inner):
            yield from _needed(inner)
        elif option.required:
            yield name


def _named(type: type[Config], argv: Sequence[str], layout: FlagLayout) -> dict[str, str]:
    """Returns the values of flags, which may name parts, and of the first argument."""
    names: dict[str, str] = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and (given := value if equals else following):
            names[flag[2:]] = given
    option, part = _first(type, layout)
    if option is not None and part and argv and not argv[0].startswith("-"):
        names[option.name] = argv[0]
    return names


@dataclass(frozen=True)
class _Flags:
    """Lists the flags of options, and of the parts that `names` or a file's table name."""

    layout: FlagLayout
    names: Mapping[str, str]

    def of(
        self, options: Mapping[str, Option], above: tuple[str, ...], table: Mapping[str, Any]
    ) -> Iterator[Flag]:
        for name, option in options.items():
            flag = self.make((*above, name), option)
            inner, below = _part_type(option), table.get(name)
            below = {"name": below} if isinstance(below, str) else below
            below = below if isinstance(below, Mapping) else {}
            if inner is None:
                yield flag
            elif is_sequence(option.type):  # parts in a list have no flags
                continue
            elif issubclass(inner, PartConfig):
                yield replace(flag, part=inner)
                yield from self.of_part(inner, flag, below)
            # a family: one of several configurations, by name
            elif (options_named := getattr(inner, "options_named", None)) is not None:
                yield replace(flag, family=True)
                named = self.names.get(flag.name or name) or below.get("name")
                if isinstance(named, str):
                    yield from self.of(options_named(named), flag.path, below)
            else:
                yield from self.of(config_options(inner), flag.path, below)

    def make(self, path: tuple[str, ...], option: Option) -> Flag:
        dotted, layout, path_named = ".".join(path), self.layout, path
        if dotted in layout.positional:
            return Flag(path, option, "")
        if len(path) > 1 and path[0] in layout.flat and ".".join(path[:2]) not in layout.whole:
            path_named = path[1:]
        name = ".".join(path_named).replace("_", "-")
        return Flag(path, option, name)

    def of_part(
        self, part: type[PartConfig], flag: Flag, below: Mapping[str, Any]
    ) -> Iterator[Flag]:
        """Yields the flags of the options of a part's name: the given one, else the default."""
        default, given = get_name(flag.option.default), self.names.get(flag.name or flag.path[0])
        table = dict(below) or ({"name": default} if isinstance(default, str) else {})
        if given is not None:
            table = {**(table if table.get("name") == given else {}), "name": given}
        if not isinstance(table.get("name"), str):
            if part.kind != "model":
                return
            table["name"] = "NAME"  # the options of a model at an endpoint, for any model name
        elif part.kind != "model":
            model = self.names.get(self.make((*flag.path, "model"), flag.option).name)
            if model or ("model" not in table and (model := self.names.get("model"))):
                table["model"] = model
        try:
            own = part.options_for(table)
        except UsageError as error:
            if given is not None:  # the arguments name it
                raise
            raise UsageError(f"{flag.dotted}: {error}") from None
        yield from self.of(own, flag.path, table)


def _part_type(option: Option) -> type[PartConfig] | type[Config] | None:
    bare = bare_type(option.type)
    kinds = {bare, *get_args(bare)}
    reference = next((home for kind, home in _PARTS.items() if kind in kinds), None)
    return inner_config(option.type) if reference is None else load_object(reference)


def _names(word: str) -> list[str]:
    return [name.strip() for name in word.split(",")]


def _add(group: Any, flag: Flag, layout: FlagLayout) -> None:
    option = flag.option
    text = option.description
    unsaid = isinstance(option.default, bool | None) or option.default in ((), "")
    if not option.required and not unsaid and "default" not in text:
        text += f" (default {_shown(option.default)})"
    hidden = bool({flag.dotted, flag.path[-1]} & layout.hidden) or (
        flag.path[1:-1] and flag.path[-2].endswith("model")
    )
    text = argparse.SUPPRESS if hidden else text.replace("%", "%%")
    metavar = _metavar(flag)
    if not flag.names:
        # Added for the help only, because argparse cannot place an argument after a flag.
        # `Derived.read` places them.
        group.add_argument(flag.dotted, nargs=argparse.SUPPRESS, metavar=metavar, help=text)
        return
    settings: dict[str, Any] = {"dest": flag.dotted, "help": text, "default": None}
    shown = list(flag.names)
    if bare_type(option.type) is bool:
        settings["action"] = argparse.BooleanOptionalAction
        if option.default is True:
            shown = [f"--[no-]{flag.name}"]
    else:
        settings["metavar"] = metavar
        is_list = len(flag.path) == 1 and is_sequence(option.type)
        # Names may be joined by commas, which paths may contain.
        if is_list and get_args(bare_type(option.type))[:1] == (str,):
            settings |= {
                "action": "extend",
                "type": _names,
                "metavar": "A,B",
            }
        elif is_list:
            settings |= {"action": "extend", "nargs": "+"}
    action = group.add_argument(*flag.names, **settings)
    action.shown = shown
    if bool in get_args(bare_type(option.type)):  # a boolean, or a value
        group.add_argument(
            f"--no-{flag.name}",
            dest=flag.dotted,
            action="store_const",
            const=False,
            default=None,
            help=argparse.SUPPRESS,
        )


def _metavar(flag: Flag) -> str:
    bare = bare_type(flag.option.type)
    if flag.part is not None or flag.family:
        return "NAME"
    if get_args(bare) and all(isinstance(one, str) for one in get_args(bare)):
        return "|".join(map(str, get_args(bare)))
    types = {one for one in (get_args(bare) or (bare,)) if isinstance(one, type)}
    if types & {int, float} and str not in types:
        return "N"
    return "PATH" if Path in types else flag.path[-1].upper().replace("_", "-")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:g}"
    return value.name if isinstance(value, PartConfig) else str(value)


def _read(value: Any, flag: Flag) -> Any:
    """Parses the value of a flag to the type of its option. Raises OptionError that names the
    flag.
    """
    if flag.part is not None or flag.family or isinstance(value, bool):
        return value
    option, bare = flag.option, bare_type(flag.option.type)
    if isinstance(bare, type) and bare.__module__ != "builtins" and bare is not Path:
        # a string that the part's factory interprets, such as a cache folder
        return value
    try:
        return read_value(_parsed(value, bare), option, lax=True)
    except OptionError as error:
        reason = str(error).partition(": ")[2]
        raise UsageError(f"{flag.names[-1] if flag.names else option.name}: {reason}") from None


def _parsed(value: Any, hint: Any) -> Any:
    """Parses text from the command line: lists as JSON or comma-separated, tables as JSON or
    KEY=VALUE.
    """
    if not isinstance(value, str):
        return value
    if value.startswith(("[", "{")):
        for read in (json.loads, lambda text: parse_toml(f"value = {text}")["value"]):
            with suppress(ValueError):
                return read(value)
        return value
    kinds = {get_origin(one) or one for one in (hint, *map(bare_type, get_args(hint)))}
    if kinds & {dict, Mapping} and "=" in value:
        key, _, inner = value.partition("=")
        return {key: inner}
    if kinds & {list, tuple, Sequence} and str not in kinds:
        return _names(value)
    return value


def _put(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets a value in nested tables; a name in its place becomes a table with that name."""
    *above, last = path
    for name in above:
        below = table.get(name, {})
        table[name] = below if isinstance(below, dict) else {"name": below}
        table = table[name]
    table[last] = value


def _has(table: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return isinstance(table, str)
        table = table[name]
    return True
