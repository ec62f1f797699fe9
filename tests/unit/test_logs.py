"""The library logs and prints nothing; the command shows on stderr what it logs for whoever waits
there.
"""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.cli.showing import show_logs
from prill.logs import FOR_USERS
from prill.types import Task, Trajectory
from tests.unit.test_structure import MODULES, ROOT, layer

LOG = logging.getLogger("prill.some.room")


def prints(path: Path) -> list[int]:
    """The lines that print, or write to a standard stream."""

    def written(node: ast.Call) -> bool:
        call = node.func
        if isinstance(call, ast.Name):
            return call.id == "print"
        stream = (
            call.value
            if isinstance(call, ast.Attribute) and call.attr in ("write", "writelines")
            else None
        )
        return isinstance(stream, ast.Attribute) and stream.attr in (
            "stdout",
            "stderr",
            "__stdout__",
            "__stderr__",
        )

    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and written(node)]


def test_only_commands_print() -> None:
    found = {
        name: prints(path)
        for name, path in MODULES.items()
        if layer(name) not in ("cli", "testing") and not name.endswith(".__main__")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert prints(MODULES["prill.cli"])  # it would be seen


def test_the_command_shows_warnings_and_what_is_for_users(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_logs("score"):
        LOG.debug("no detail")
        LOG.info("no news")
        LOG.info("unpacking %s", "weights", extra=FOR_USERS)
        LOG.warning("two lines left out")
        logging.getLogger("elsewhere").warning("of another package")
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if line.startswith("prill")] == [
        "prill score: unpacking weights",
        "prill score: two lines left out",
    ]
    logger = logging.getLogger("prill")
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)


def test_a_bug_of_a_judge_is_shown_once_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "import prill\n@prill.as_judge('mine', version='1')\ndef mine(trajectory):\n    return 1 "
        "/ 0 > len('\\x1b[31m')\n"
    )
    prill.write_trajectories(
        tmp_path / "t.jsonl", [Trajectory(id=str(i), task=Task(goal="g")) for i in range(3)]
    )
    command = [
        "score",
        str(tmp_path / "t.jsonl"),
        "-o",
        str(tmp_path / "v.jsonl"),
        "--judge",
        f"{tmp_path}/own.py:mine",
    ]
    assert main(command) == 3
    shown = capsys.readouterr().err
    assert shown.count("prill score: the judge 'mine' raised ZeroDivisionError for '0'") == 1
    assert shown.count("Traceback (most recent call last)") == 1
    assert "\x1b" not in shown
    assert {verdict.unscored for verdict in prill.read_verdicts(tmp_path / "v.jsonl")} == {"parse"}


def test_skipped_lines_are_told_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = ROOT / "datasets/samples/miniwob"
    verdicts = tmp_path / "v.jsonl"
    assert (
        main(
            [
                "score",
                str(samples / "trajectories.jsonl"),
                "-o",
                str(verdicts),
                "--judge",
                "self-report",
            ]
        )
        == 0
    )
    broken = tmp_path / "t.jsonl"
    broken.write_bytes((samples / "trajectories.jsonl").read_bytes() + b"{}\n")
    capsys.readouterr()
    assert (
        main(["agree", str(verdicts), str(samples / "labels.jsonl"), "--trajectories", str(broken)])
        == 0
    )
    assert (
        f"prill agree: {broken}: 1 broken line left out; the first is {broken}:"
        in capsys.readouterr().err
    )
