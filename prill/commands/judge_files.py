"""Judge files: an evaluator described in TOML, by the same words as on the command line.

    evaluator = "cascade"
    band = [0.2, 0.8]

    [[judges]]
    evaluator = "student"
    model = "student.json"

    [[judges]]
    evaluator = "modular"
    model = "gpt-4o-mini"

What a judge does not say is as on the command line. `weight` is for the judges of an ensemble.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from prill.errors import UsageError

# These go around the whole evaluator, so its parts do not inherit them.
_OUTER: dict[str, Any] = {
    "evidence_only": False,
    "read_points": None,
    "mark_points": False,
    "calibration": None,
    "judges": (),
    "weights": None,
}
_WITHOUT_MODEL = ("student", "prior", "oracle", "self-report", "always-fail", "always-success")


def read_judge_file(path: str, args: argparse.Namespace) -> argparse.Namespace:
    """The command line with what the file says; `judges` and `weights` hold what it says of the parts. Raises UsageError."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    return _overlaid(path, table, args, "")


def _overlaid(path: str, table: dict[str, Any], args: argparse.Namespace, place: str) -> argparse.Namespace:
    table = dict(table)
    parts = table.pop("judges", [])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UsageError(f"{path}: {place}judges must be a list of tables, each under [[judges]]")
    if "evaluator" not in table:
        raise UsageError(f"{path}: {place or 'the file'} names no evaluator")
    own = _parsed(path, table, args, place)
    if own.budget_usd is not None and sum(part.get("evaluator") not in _WITHOUT_MODEL for part in parts) > 1:
        raise UsageError(f"{path}: a budget covers one model; set budget-usd for each judge in the file")
    weights = [part.pop("weight", 1.0) for part in parts]
    own.weights = weights if parts else None
    inherited = argparse.Namespace(**{**vars(own), **_OUTER})
    own.judges = [_overlaid(path, part, inherited, f"judges[{i}]: ") for i, part in enumerate(parts)]
    return own


def _parsed(path: str, table: dict[str, Any], args: argparse.Namespace, place: str) -> argparse.Namespace:
    """Reads the table as if its words stood on the command line, so that they are checked alike."""
    from prill.commands.judges import add_judge_options

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{path}: {place}{message.replace('--', '')}")

    parser = Parser(add_help=False, allow_abbrev=False)
    add_judge_options(parser)
    words: list[str] = []
    for key, value in table.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        else:
            words.append(f"{flag}={value}")
    kept = argparse.Namespace(**vars(args))
    return parser.parse_args(words, namespace=kept)
