"""`prill check` as a user meets it: exit codes, what is said, and the schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.io.schemas import KINDS, schema
from prill.io.store import encode, read_verdicts
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from tests.support.commands.command import Prill, write_trajectories

LABEL = encode(LabelRecord(id="a", success=True))


def test_good_files_give_exit_code_0(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    (tmp_path / "l.jsonl").write_bytes(LABEL)
    done = prill("check", "t.jsonl", "l.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "t.jsonl: trajectories, 3 good lines\nl.jsonl: labels, 1 good lines\n"


def test_check_names_broken_lines(prill: Prill, tmp_path: Path) -> None:
    with write_trajectories(tmp_path / "t.jsonl", 2).open("a") as file:
        file.write(
            '{"id": "x", "task": {}}\n{"id": "\\u001b[2J", "task": {"goal": "g"}, "final": '
            '{"screenshot": "no\x7f.png"}}\n'
        )
    done = prill("check", "t.jsonl")
    assert done.returncode == 3
    first, second, third = done.stdout.splitlines()
    assert first == "t.jsonl: trajectories, 2 good lines, 2 broken"
    assert second == "  t.jsonl:3: missing field `goal` - at `$.task`"
    assert third.endswith("no?.png is missing - at `$.final.screenshot`")


def test_unknown_action_kinds_are_told_with_the_nearest(prill: Prill, tmp_path: Path) -> None:
    kinds = ("tap", "click", "tpye", "tap", "other", "frob")
    steps = tuple(Step(Observation(text="a page"), Action(kind)) for kind in kinds)
    run = Trajectory(id="a", task=Task(goal="g"), steps=steps)
    (tmp_path / "t.jsonl").write_bytes(encode(run))
    done = prill("check", "t.jsonl")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "t.jsonl: trajectories, 1 good lines",
            "  note: t.jsonl:1: unknown action kind 'tap' (did you mean 'click'?) at "
            "`steps[0].action.kind`, 2 times in total; judges see it as it is",
            "  note: t.jsonl:1: unknown action kind 'tpye' (did you mean 'type'?) at "
            "`steps[2].action.kind`; judges see it as it is",
            "  note: t.jsonl:1: unknown action kind 'frob' at `steps[5].action.kind`; judges see "
            "it as it is",
        ],
    )


def test_check_with_one_missing_file(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_bytes(LABEL)
    done = prill("check", "l.jsonl", "none.jsonl")
    assert (done.returncode, "none.jsonl: no such file" in done.stdout) == (3, True)


@pytest.mark.parametrize("content", [b"", b"id,goal\n1,buy\n", None])
def test_nothing_readable_gives_2(content: bytes | None, prill: Prill, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "t.jsonl").write_bytes(content)
    done = prill("check", "t.jsonl")
    assert (done.returncode, "t.jsonl: unknown kind, 0 good lines" in done.stdout) == (2, True)


def test_twenty_problems_are_shown(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_bytes(LABEL + b'{"id": 1, "success": true}\n' * 25)
    done = prill("check", "l.jsonl")
    assert (done.stdout.count("$.id"), done.stdout.splitlines()[-1]) == (
        20,
        "  … and 5 more problems",
    )
    (report,) = json.loads(prill("check", "l.jsonl", "--json").stdout)
    assert (len(report.pop("problems")), report) == (
        25,
        {"file": "l.jsonl", "holds": "labels", "good": 1, "broken": 25, "notes": []},
    )


def test_images_are_opened_on_demand(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"no image")
    write_trajectories(tmp_path / "t.jsonl", 1, screenshot="x.png")
    assert prill("check", "t.jsonl").returncode == 0
    done = prill("check", "t.jsonl", "--images")
    assert "x.png is not an image" in done.stdout
    assert done.returncode == 2, "the only line is broken"


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_printed_on_demand(kind: str, prill: Prill) -> None:
    done = prill("check", "--schema", kind)
    assert (done.returncode, done.stdout) == (0, schema(kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [(), ("t.jsonl", "--schema", "labels")])
def test_check_takes_files_or_schema(words: tuple[str, ...], prill: Prill) -> None:
    done = prill("check", *words)
    assert (
        done.returncode,
        "give either files to check, or a kind for schema (--schema)" in done.stderr,
    ) == (2, True)


def test_check_and_score_agree_on_ids(prill: Prill, tmp_path: Path) -> None:
    """Files that are judged together share their ids, and so do broken lines that have one."""
    (tmp_path / "a").mkdir()
    write_trajectories(tmp_path / "a/one.jsonl", 2)
    write_trajectories(tmp_path / "two.jsonl", 3)
    (tmp_path / "three.jsonl").write_text(
        '{"id": "x", "task": {}}\n{"id": "x", "task": {"goal": "g"}}\n'
    )
    for files in (["a", "two.jsonl"], ["three.jsonl", "two.jsonl"], ["two.jsonl", "two.jsonl"]):
        reports = json.loads(prill("check", *files, "--json").stdout)
        prill("score", *files, "--judge", "always-success", "-o", f"v{files[0][:3]}.jsonl")
        unscored = [
            v for v in read_verdicts(tmp_path / f"v{files[0][:3]}.jsonl") if v.unscored == "input"
        ]
        assert sum(report["broken"] for report in reports) == len(unscored) > 0
        assert sorted(problem for report in reports for problem in report["problems"]) == sorted(
            v.reason for v in unscored
        )


def test_folders_of_folders_are_checked(prill: Prill, tmp_path: Path) -> None:
    for name in ("runs/a", "runs/b/c"):
        (tmp_path / name).mkdir(parents=True)
        # runs of their own: the same ids are no fault
        write_trajectories(tmp_path / name / "trajectories.jsonl", 2)
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs")
    done = prill("check", "runs")
    assert (done.returncode, done.stdout.count("trajectories, 2 good lines\n")) == (0, 2)
    (tmp_path / "bare/deep").mkdir(parents=True)
    assert prill("check", "bare").returncode == 2
