"""`prill batch` as a user meets it: one command until all is judged, and one clear error for what
cannot be used.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prill as package
from prill.io.store import read_verdicts
from tests.support.commands.command import Prill, write_trajectories
from tests.support.models.batch_server import BatchServer


@pytest.fixture(scope="module")
def server() -> object:
    with BatchServer(batch_polls=2) as running:
        yield running


def judged(server: BatchServer, name: str = "modular") -> tuple[object, ...]:
    words = ("--judge", name, "--judge.captioner", "given", "--model", "mock")
    return (*words, "--model.base-url", server.base_url)


def started(server: BatchServer, *more: object) -> tuple[object, ...]:
    return ("batch", "b", "--trajectories", "t.jsonl", *judged(server), "--every", "0.01", *more)


def test_batch_equals_score_to_the_line(prill: Prill, server: BatchServer, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 5)
    assert prill("score", "t.jsonl", "-o", "o.jsonl", *judged(server)).returncode == 0
    first = prill(*started(server, "--no-wait", "-o", "v.jsonl"))
    assert first.returncode == 5 and "5 trajectories wait for answers" in first.stderr
    assert "requests-01-001.jsonl: 5 requests, batch" in first.stderr
    done = prill("batch", "b", "-o", "v.jsonl", "--every", "0.01", "--json")
    assert (done.returncode, json.loads(done.stdout)["pending"]) == (0, 0)
    online, batch = (
        {v.id: replace(v, seconds=0.0) for v in read_verdicts(tmp_path / n)}
        for n in ("o.jsonl", "v.jsonl")
    )
    assert batch == online and (tmp_path / "v.transcripts").is_dir()
    again = prill("score", "t.jsonl", "-o", "v.jsonl", *judged(server))
    assert (again.returncode, "5 already in the file" in again.stderr) == (0, True)


def test_python_does_what_the_command_does(
    prill: Prill, server: BatchServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    config = package.BatchConfig(
        folder="b",
        trajectories=["t.jsonl"],
        judge=package.JudgeConfig("modular", captioner="given"),
        model=package.ModelConfig("mock", base_url=server.base_url),
        every=0.01,
    )
    result = package.batch(config)
    assert (result.tally.pending, result.waiting, result.problem) == (0, (), None)
    assert len(result.verdicts()) == 3
    told = prill(*started(server))
    assert (told.returncode, "3 already in the file" in told.stderr) == (0, True), told.stderr


def test_options_of_a_batch_do_not_change(
    prill: Prill, server: BatchServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    limited = prill(*started(server, "--limit", "2", "--api", "none"))
    assert "2 trajectories wait for answers" in limited.stderr
    elsewhere = prill(*started(server, "--model.base-url", "http://elsewhere/v1?key=sesame"))
    assert elsewhere.returncode == 2 and "sesame" not in elsewhere.stderr
    assert "written for http://127.0.0.1" in elsewhere.stderr
    plan = prill("batch", "b", "--dry-run")
    assert (plan.returncode, "half the price" in plan.stderr + plan.stdout) == (0, True)
    assert "3 trajectories wait" in prill(*started(server, "--limit", "3")).stderr


VLM = ("--judge", "vlm", "--model", "gpt-4o")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ("b", "--trajectories", "t.jsonl", "--judge", "always-fail"),
            "calls no model at an endpoint",
        ),
        ((".", "--trajectories", "t.jsonl", *VLM), "contains files that do not belong to a batch"),
        (("b", "--trajectories", "-", *VLM), "reads its trajectories again later"),
        (
            ("b", "--trajectories", "t.jsonl", *VLM, "--model.budget-usd", "1"),
            "cannot enforce a budget",
        ),
        (("x" * 300, "--trajectories", "t.jsonl", *VLM), "File name too long"),
        (("nowhere",), "nowhere: no batch yet; give trajectories and a judge"),
        (("b", *VLM), "b: no batch yet"),
    ],
)
def test_misuse_of_batch_is_one_error(
    prill: Prill, tmp_path: Path, command: tuple[str, ...], words: str
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    done = prill("batch", *command)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "b").exists()


def changed(record: dict[str, Any], part: str, **keys: object) -> dict[str, Any]:
    """The description with other keys in one of the judge's tables."""
    described: dict[str, Any] = record["judge"]
    return record | {"judge": described | {part: described[part] | keys}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda record: None,
            "batch.json: not a valid batch description (Expected `object`, got `null`)",
        ),
        (
            lambda record: record | {"secret": 5},
            "batch.json: not a valid batch description (Expected `str`, got `int` - at `$.secret`)",
        ),
        (
            lambda record: changed(record, "judge", name=["x"]),
            "batch.json: judge.name: expected the name",
        ),
        (
            lambda record: record | {"judge": record["judge"] | {"model": 5}},
            "batch.json: model: expected the name of a model",
        ),
        (lambda record: changed(record, "model", timeout="soon"), "timeout: Expected `float`"),
    ],
)
def test_damaged_batch_is_one_clear_error(
    prill: Prill,
    server: BatchServer,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    words: str,
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    prill(*started(server, "--api", "none"))
    manifest = tmp_path / "b" / "batch.json"
    manifest.write_text(json.dumps(change(json.loads(manifest.read_text()))))
    before = manifest.read_bytes()
    done = prill("batch", "b", "-o", "v.jsonl")
    assert (done.returncode, words in done.stderr, len(done.stderr.splitlines())) == (2, True, 1), (
        done.stderr
    )
    assert manifest.read_bytes() == before and not (tmp_path / "v.jsonl").exists()


def test_endpoint_without_batches_is_named(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    with BatchServer(refuse_key=True) as closed:
        done = prill(*started(closed, "--model.api-key-env", "MY_KEY"), MY_KEY="sk-secret-7")
    gone = prill("batch", "b", MY_KEY="sk-secret-7")
    assert (done.returncode, gone.returncode) == (2, 2)
    assert "requests-01-001.jsonl cannot be submitted" in gone.stderr
    assert (
        "sk-secret" not in done.stderr + gone.stderr + (tmp_path / "b" / "batch.json").read_text()
    )
