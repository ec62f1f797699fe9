"""What the command adds to an error: the options that set what it names."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands.command import Prill, write_trajectories


def test_options_that_help_are_named(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    assert prill("score", "t.jsonl", "-o", "v.jsonl", "--judge", "always-fail").returncode == 0
    done = prill("score", "t.jsonl", "-o", "v.jsonl", "--judge", "always-success")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith("choose another file, or start over (-o, --no-resume)\n")


def test_wrong_output_names_its_option(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    done = prill("score", "t.jsonl", "-o", "t.jsonl", "--judge", "always-fail")
    assert done.stderr.endswith("choose another file (-o)\n")


def test_options_of_other_verbs_unsaid(prill: Prill, tmp_path: Path) -> None:
    done = prill("table", tmp_path / "none.jsonl")
    assert done.stderr == f"prill table: {tmp_path}/none.jsonl: no such file\n"
