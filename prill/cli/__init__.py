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

from prill.cli.commands import COMMANDS, overview
from prill.errors import EndpointGone, EnvironmentFailure, PrillError, UsageError

_COMMANDS = {
    "batch": "judge by batches: requests as files for a batch API or `vllm run-batch`, verdicts from the answers",
    "caption": "put screenshots into words, once each, for judges or to train a captioner",
    "filter": "from verdicts to training rows: keep the steps that a judge found good",
    "train": "a policy or a captioner from rows: a LoRA adapter, or all weights; a ranker or planner from recorded pages",
}
_GROUP_OF = {
    **dict.fromkeys(("serve", "batch", "caption", "judges", "show"), "judge"),
    **dict.fromkeys(("agree", "fit", "calibrate", "redteam"), "trust"),
    **dict.fromkeys(("refine", "reflexion", "filter", "train", "watch"), "improve"),
    **dict.fromkeys(("rollout", "devices"), "play"),
    **dict.fromkeys(("bench", "rank", "exemplars", "conversations"), "papers"),
}
# Verbs that stand in a room below `prill.commands`.
_MODULES = {
    "caption": "refine.caption",
    "filter": "refine.filter",
    "train": "refine.train",
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
    others = {name: (_GROUP_OF[name], purpose) for name, purpose in _COMMANDS.items()}
    if not words or words[0] in ("-h", "--help"):
        print(overview(others))
        return 0 if words else 2
    for length in (2, 1):  # some commands have a name of two words
        if (name := " ".join(words[:length])) in COMMANDS:
            return _run_command(name, words[length:])
    command, rest = words[0], words[1:]
    if command == "--version":
        from prill import __version__

        print(f"prill {__version__}")
        return 0
    if command == "completion":
        return _complete(rest)
    if command not in _COMMANDS:
        from prill.registry import nearest

        below = [name for name in COMMANDS if name.startswith(f"{command} ")]
        guess = (
            f" alone; there is {', '.join(below)}" if below else nearest(command, {**COMMANDS, **_COMMANDS, "completion": ""})
        )
        print(f"prill: there is no command {command!r}{guess}; prill --help lists them", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="prill")
    verbs, purpose = parser.add_subparsers(dest="command"), _COMMANDS[command]
    _module(command).configure(verbs.add_parser(command, description=f"{purpose[0].upper()}{purpose[1:]}."))
    args = parser.parse_args(words)
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


def _complete(words: Sequence[str]) -> int:
    """`prill completion SHELL`."""
    from prill.cli.completing import SHELLS, completion

    if len(words) != 1 or words[0] not in SHELLS:
        print(f"prill completion: name the shell: prill completion {'|'.join(SHELLS)} > FILE", file=sys.stderr)
        return 2
    try:
        print(completion(words[0], {name: _module(name).configure for name in _COMMANDS}))
    except PrillError as error:
        print(f"prill completion: {error}", file=sys.stderr)
        return 2
    return 0


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
        print(f"prill {name}: {derived.told(error) if derived else error}", file=sys.stderr)
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
