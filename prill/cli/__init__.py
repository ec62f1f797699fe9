"""The `prill` command: one verb a module of `prill.commands`, each a thin caller of public functions."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO, cast

from prill.cli.commands import COMMANDS
from prill.errors import EndpointGone, EnvironmentFailure, PrillError, UsageError

_COMMANDS = {
    "refine": "make an agent better: it learns from its own attempts, as far as a judge finds them good",
    "reflexion": "try tasks again while a judge says failure, each time with a lesson from the attempt before",
    "bench": "tables of what an agent comes to on a benchmark, beside the figures of the papers",
}
# Verbs that stand in a room below `prill.commands`.
_MODULES = {
    "bench": "refine.bench",
    "refine": "refine.refine",
    "reflexion": "refine.reflexion",
}
# What sets a parameter that an error names, where it is not a flag of that name: the flag, and its attribute in the arguments.
_FLAGS = {"output": ("-o", "output"), "resume": ("--no-resume", "no_resume")}


# What steers a terminal is printed as its number.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. 2: bad usage, or nothing could be read. 4: the endpoint or the environments are
    gone, and the same command goes on when they are back."""
    gc.set_threshold(10_000)  # each look for garbage goes through all that is under way, and little is found
    progress = {code: number for code, number in _CONTROLS.items() if chr(code) != "\r"}  # bars begin each line anew
    with redirect_stdout(_harmless(sys.stdout, _CONTROLS)), redirect_stderr(_harmless(sys.stderr, progress)):
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    for length in (2, 1):  # some commands have a name of two words
        if (name := " ".join(words[:length])) in COMMANDS:
            return _run_command(name, words[length:])
    if words and (kinds := commands_of(words[0])):
        return _say_kinds(words[0], kinds, words[1:])
    command = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="prill", description="Judges what a digital agent did, and uses the judgement to make the agent better."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands (prill COMMAND --help tells more)")
    for name, purpose in {**{name: one.purpose for name, one in COMMANDS.items()}, **_COMMANDS}.items():
        verb = verbs.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name == command and name in _COMMANDS:
            _module(name).configure(verb)
    args = parser.parse_args(words)
    if args.version:
        from prill import __version__

        print(f"prill {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    try:
        from prill.cli.showing import logs_shown

        with logs_shown(args.command):
            code = int(_module(args.command).run(args))
        sys.stdout.flush()
        return code
    except (EndpointGone, EnvironmentFailure) as error:
        flag = next((f"--{name.replace('_', '-')}" for name in ("retry_unscored", "retry_broken") if hasattr(args, name)), None)
        print(f"prill {args.command}: {error}", file=sys.stderr)
        again = f"; {flag} tries again what failed meanwhile" if flag else ""
        print(f"what is finished is kept, and the same command goes on from there{again}", file=sys.stderr)
        return 4
    except PrillError as error:
        print(f"prill {args.command}: {error}{_helpful_options(error, args)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop(sys.stdout)
        return 1
    finally:
        import_module("prill.files.lines").forget_streams()


def commands_of(first: str) -> dict[str, str]:
    """The commands of two words whose first one that is: the second words, with what they do."""
    pairs = ((name.partition(" "), command.purpose) for name, command in COMMANDS.items())
    return {second: purpose for (word, _, second), purpose in pairs if second and word == first}


def _say_kinds(first: str, kinds: Mapping[str, str], rest: Sequence[str]) -> int:
    """Lists the second words of a command where none of them follows; 2 where something else does."""
    if rest and rest[0] in ("-h", "--help"):
        print(f"prill {first} {'|'.join(kinds)} … (prill {first} KIND --help tells more)\n")
        width = max(map(len, kinds))
        print("\n".join(f"  prill {first} {kind:<{width}}  {purpose}" for kind, purpose in kinds.items()))
        return 0
    given = f"unknown {rest[0]!r}{import_module('prill.registry').nearest(rest[0], kinds)}; there are" if rest else "say which"
    print(f"prill {first}: {given}: {', '.join(kinds)}", file=sys.stderr)
    return 2


def _run_command(name: str, argv: list[str]) -> int:
    """Runs a command whose command line is derived from its configuration."""
    from prill.cli.derive import derive
    from prill.cli.showing import logs_shown
    from prill.registry import load_object

    command = COMMANDS[name]
    derived = None
    try:
        derived, rest = derive(
            load_object(command.config),
            argv,
            command.words,
            prog=f"prill {name}",
            description=f"{command.purpose[0].upper()}{command.purpose[1:]}.",
            examples=command.examples,
            epilog=command.epilog,
            dry_run=command.dry_run,
        )
        config, switches = derived.read(rest)
        with logs_shown(name):
            code = int(load_object(command.show)(config, switches))
        sys.stdout.flush()
        return code
    except (EndpointGone, EnvironmentFailure) as error:
        again = next(
            (flag for path in ("retry_unscored", "retry_broken") if derived and (flag := derived.flag_of(path)) != path), None
        )
        print(f"prill {name}: {error}", file=sys.stderr)
        more = f"; {again} tries again what failed meanwhile" if again else ""
        print(f"what is finished is kept, and the same command goes on from there{more}", file=sys.stderr)
        return 4
    except PrillError as error:
        print(f"prill {name}: {error}{derived.flags_for(error) if derived else ''}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop(sys.stdout)
        return 1
    finally:
        import_module("prill.files.lines").forget_streams()


class _Harmless:
    """A text stream where words of agents and pages cannot steer the terminal, nor end the run in an old encoding."""

    def __init__(self, stream: TextIO, controls: Mapping[int, str]) -> None:
        self._stream, self._controls = stream, controls

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        with self._failures():
            self._stream.write(text.translate(self._controls).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with self._failures():
            self._stream.flush()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            _drop(self._stream)
            raise UsageError(f"what is printed cannot be written: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _harmless(stream: TextIO, controls: Mapping[int, str]) -> TextIO:
    return cast(TextIO, _Harmless(stream, controls))


def _module(command: str) -> ModuleType:
    return import_module(f"prill.commands.{_MODULES.get(command, command)}")


def _drop(stream: TextIO) -> None:
    """What is left for a reader that has gone, or a full disk, must not be written when Python ends: it would complain."""
    with suppress(OSError, ValueError):  # no real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _helpful_options(error: PrillError, args: argparse.Namespace) -> str:
    """The flags that an error's parameters have in this command: the library speaks of parameters only."""
    parameters = error.parameters if isinstance(error, UsageError) else ()
    named = (_FLAGS.get(name, (f"--{name.replace('_', '-')}", name)) for name in parameters)
    flags = [flag for flag, attribute in named if hasattr(args, attribute)]
    return f" ({', '.join(flags)})" if flags else ""


if __name__ == "__main__":
    sys.exit(main())
