"""The `prill` command."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from typing import Any, TextIO, cast

from prill.cli.commands import COMMANDS, overview
from prill.cli.layout import say
from prill.errors import EndpointGoneError, EnvironmentFailedError, PrillError, UsageError
from prill.text import CONTROL

# Characters that a terminal would interpret are printed as escapes.
_CONTROLS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in range(0x2070)
    if CONTROL.match(chr(code))
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    2: bad usage, or nothing could be read. 4: the endpoint or all environments failed; the same
    command resumes once they work again.
    """
    # each collection scans everything in use and frees little
    gc.set_threshold(10_000)
    # progress bars rewrite their line
    progress = {code: number for code, number in _CONTROLS.items() if chr(code) != "\r"}
    with (
        redirect_stdout(cast(TextIO, _Harmless(sys.stdout, _CONTROLS))),
        redirect_stderr(cast(TextIO, _Harmless(sys.stderr, progress))),
    ):
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0 if arguments else 2
    for length in (2, 1):  # some commands have a name of two words
        if (name := " ".join(arguments[:length])) in COMMANDS:
            return _run_command(name, arguments[length:])
    command, *rest = arguments
    if command == "--version":
        from prill import __version__

        print(f"prill {__version__}")
        return 0
    kinds = list_commands(command)
    if kinds and rest[:1] in (["-h"], ["--help"]):
        _print_kinds(command, kinds)
        return 0
    from prill.config.registry import nearest

    if not kinds:
        guess = nearest(command, [*COMMANDS, *(name.partition(" ")[0] for name in COMMANDS)])
        say(f"prill: unknown command {command!r}{guess}; prill --help lists the commands")
        return 2
    given = (
        f"unknown {rest[0]!r}{nearest(rest[0], kinds)}; choose from"
        if rest
        else "name a subcommand"
    )
    say(f"prill {command}: {given}: {', '.join(kinds)}")
    return 2


def list_commands(first: str) -> dict[str, str]:
    """Returns the subcommands of a two-word command, each with its purpose."""
    pairs = ((name.partition(" "), command.purpose) for name, command in COMMANDS.items())
    return {second: purpose for (word, _, second), purpose in pairs if second and word == first}


def _print_kinds(first: str, kinds: Mapping[str, str]) -> None:
    """Lists the subcommands of a command."""
    print(f"prill {first} {'|'.join(kinds)} … (prill {first} KIND --help for details)\n")
    width = max(map(len, kinds))
    for kind, purpose in kinds.items():
        print(f"  prill {first} {kind:<{width}}  {purpose}")


def _run_command(name: str, argv: list[str]) -> int:
    """Runs a command whose command line is derived from its configuration."""
    from prill.cli.derive import derive
    from prill.cli.showing import present, show_logs
    from prill.config.registry import load_object

    command = COMMANDS[name]
    derived = None
    try:
        derived, rest = derive(
            load_object(command.config),
            argv,
            command.layout,
            prog=f"prill {name}",
            description=f"{command.purpose[0].upper()}{command.purpose[1:]}.",
            examples=command.examples,
            epilog=command.epilog,
            dry_run=bool(command.plan),
        )
        config, switches = derived.read(rest)
        with show_logs(name):
            code = present(name, command, config, switches, derived.get_flag)
        sys.stdout.flush()
        return code
    except (EndpointGoneError, EnvironmentFailedError) as error:
        names = ("retry_unscored", "retry_broken")
        flags = map(derived.get_flag, names) if derived else ()
        again = next((flag for flag in flags if flag.startswith("--")), "")
        say(f"prill {name}: {error}")
        more = f"; {again} retries what failed in the meantime" if again else ""
        say(f"finished work is saved; run the same command again to resume{more}")
        return 4
    except PrillError as error:
        say(f"prill {name}: {derived.explain(error) if derived else error}")
        return 2
    except KeyboardInterrupt as stop:
        why = str(stop) or "interrupted; run the same command again to resume"
        say(f"\nprill {name}: {why}")
        return cast(int, import_module("prill.running").EXIT_INTERRUPTED)
    except BrokenPipeError:
        _drop(sys.stdout)
        return 1
    finally:
        import_module("prill.io.lines").forget_streams()


class _Harmless:
    """A text stream that neutralises control sequences and survives encoding errors."""

    def __init__(self, stream: TextIO, controls: Mapping[int, str]) -> None:
        self._stream, self._controls = stream, controls

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        with self._failures():
            self._stream.write(
                text.translate(self._controls).encode(encoding, "backslashreplace").decode(encoding)
            )
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
            raise UsageError(f"cannot write to stdout: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _drop(stream: TextIO) -> None:
    """Redirects a stream whose reader is gone or whose disk is full.

    Otherwise Python would report an error when it flushes the stream at exit.
    """
    with suppress(OSError, ValueError):  # not a real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
