"""The `prill` command: one verb a module of `prill.commands`, each a thin caller of public functions."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from prill.errors import PrillError, UsageError

_COMMANDS = {
    "score": "judge trajectories and write verdicts",
    "show": "one verdict with what models were asked and answered",
    "judges": "the judges there are, their options and prompts",
    "agree": "compare verdicts with labels",
    "report": "one HTML page with screenshots, verdicts and labels",
    "annotate": "label trajectories by hand, in a browser",
    "table": "verdicts as a Markdown table, a CSV file or JSON",
    "check": "what files hold, and every line and image in them that is broken",
    "fit": "fit a judge to your own labelled trajectories, without a language model",
    "calibrate": "make a judge's scores probabilities, and choose a threshold",
    "redteam": "attack judges with false claims and injected text",
    "refine": "make an agent better: it learns from its own attempts, as far as a judge finds them good",
    "rollout": "record trajectories: a policy in an environment",
    "devices": "which browsers, phones and simulators can be used here, and how to get the others",
    "convert": "turn other tools' recordings into trajectories",
    "filter": "from verdicts to training rows: keep the steps that a judge found good",
    "train": "a policy or a captioner from rows: a LoRA adapter, or all weights",
}
# Verbs that stand in a room below `prill.commands`.
_MODULES = {
    "check": "files.check",
    "convert": "files.convert",
    "filter": "refine.filter",
    "refine": "refine.refine",
    "table": "files.table",
    "train": "refine.train",
}
# What sets a parameter that an error names, where it is not a flag of that name: the flag, and its attribute in the arguments.
_FLAGS = {"output": ("-o", "output"), "resume": ("--no-resume", "no_resume")}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. 2: bad usage, or nothing could be read."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="prill", description="Judges what a digital agent did, and uses the judgement to make the agent better."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands (prill COMMAND --help tells more)")
    command = next((word for word in words if not word.startswith("-")), None)
    for name, purpose in _COMMANDS.items():
        verb = verbs.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name == command:
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
        code = int(_module(args.command).run(args))
        sys.stdout.flush()
        return code
    except PrillError as error:
        print(f"prill {args.command}: {error}{_helpful_options(error, args)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()
        return 1
    finally:
        import_module("prill.files.lines").forget_streams()


def _module(command: str) -> ModuleType:
    return import_module(f"prill.commands.{_MODULES.get(command, command)}")


def _drop_output() -> None:
    """What is left for a reader that has gone must not be written when Python ends: it would complain."""
    with suppress(OSError, ValueError):  # no real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _helpful_options(error: PrillError, args: argparse.Namespace) -> str:
    """The flags that an error's parameters have in this command: the library speaks of parameters only."""
    parameters = error.parameters if isinstance(error, UsageError) else ()
    named = (_FLAGS.get(name, (f"--{name.replace('_', '-')}", name)) for name in parameters)
    flags = [flag for flag, attribute in named if hasattr(args, attribute)]
    return f" ({', '.join(flags)})" if flags else ""


if __name__ == "__main__":
    sys.exit(main())
