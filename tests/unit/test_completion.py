"""Shell completion: bash offers commands, flags, names, and the options of what is named."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from prill.cli import main
from prill.cli.commands import COMMANDS
from prill.evaluators.registry import JUDGES

pytest.importorskip("shtab", reason="what makes the scripts")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash."""
    from prill.cli.completing import completion

    path = tmp_path_factory.mktemp("completion") / "prill.bash"
    path.write_text(completion("bash"))
    return path


def offered(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash")
    program = (
        f'source {script}; COMP_WORDS=(prill "$@"); COMP_CWORD=$#; _shtab_prill; '
        'for word in "${COMPREPLY[@]}"; do echo "$word"; done'
    )
    done = subprocess.run(
        [bash, "-c", program, "bash", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.splitlines())


def test_bash_completes_commands(script: Path) -> None:
    assert offered(script, "") >= {*(name.split()[0] for name in COMMANDS), "completion"}
    for room, _, last in (name.partition(" ") for name in COMMANDS if " " in name):
        assert last in offered(script, room, "")
    assert offered(script, "anno") == {"annotate"}


def test_bash_completes_flags_and_names(script: Path) -> None:
    assert offered(script, "score", "--retry") == {"--retry-unscored"}
    assert offered(script, "score", "t.jsonl", "--judge", "") == set(JUDGES.names())
    assert offered(script, "table", "v.jsonl", "--format", "c") == {"csv"}
    assert offered(script, "convert", "webar") == {"webarena"}


def test_bash_completes_options_of_parts(script: Path) -> None:
    assert offered(script, "score", "t.jsonl", "--judge", "vlm", "--judge.fr") == {
        "--judge.frames",
        "--judge.frames-per-call",
    }
    assert "--format.scores" in offered(script, "convert", "mind2web", "in", "--format")


def test_bash_completes_files(script: Path) -> None:
    assert offered(script, "convert", "webarena", f"{script.parent}/pri") == {str(script)}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert "--judge.frames" in shown or "judge.frames" in shown
    assert len(shown) < 2_000_000
    if (program := shutil.which(shell)) is not None:
        assert (
            subprocess.run(
                [program, "-n"], input=shown, text=True, capture_output=True, check=False
            ).returncode
            == 0
        )


@pytest.mark.parametrize("words", [[], ["tcl"], ["bash", "zsh"]])
def test_a_shell_must_be_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *words]) == 2
    assert "prill completion bash|zsh|fish > FILE" in capsys.readouterr().err
