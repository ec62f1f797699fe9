"""`prill batch` as a user meets it: written, handed in, collected, and one clear error for what
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


# The judge as earlier versions described it: the words of the command line in one table.
OLD: dict[str, Any] = {
    "evaluator": "modular",
    "captioner": "given",
    "model": "mock",
    "concurrency": 16,
}


def changed(record: dict[str, Any], part: str, **keys: object) -> dict[str, Any]:
    """The description of the judge with other keys in one of its tables."""
    described: dict[str, Any] = record["judge"]
    return described | {part: described[part] | keys}


def judged(server: BatchServer, name: str = "modular") -> tuple[object, ...]:
    return (
        "--judge",
        name,
        "--captioner",
        "given",
        "--model",
        "mock",
        "--base-url",
        server.base_url,
    )


def test_batch_equals_score_to_the_line(prill: Prill, server: BatchServer, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 5)
    assert prill("score", "t.jsonl", "-o", "o.jsonl", *judged(server, "steps")).returncode == 0
    assert prill("batch", "write", "t.jsonl", "-o", "b", *judged(server, "steps")).returncode == 0
    assert prill("batch", "collect", "b", "-o", "v.jsonl").returncode == 5
    handed_in = prill("batch", "submit", "b", "--wait", "--every", "1")
    assert "requests-01-001.jsonl: 5 requests, batch" in handed_in.stderr
    collected = prill("batch", "collect", "b", "-o", "v.jsonl", "--json")
    assert (collected.returncode, json.loads(collected.stdout)["pending"]) == (0, 0)
    online, batch = (
        {v.id: replace(v, seconds=0.0) for v in read_verdicts(tmp_path / n)}
        for n in ("o.jsonl", "v.jsonl")
    )
    assert batch == online
    again = prill("score", "t.jsonl", "-o", "v.jsonl", *judged(server, "steps"))
    assert (again.returncode, "5 already in the file" in again.stderr) == (0, True)


def test_python_does_what_the_commands_do(
    prill: Prill, server: BatchServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    assert prill("score", "t.jsonl", "-o", "o.jsonl", *judged(server)).returncode == 0
    config = package.BatchWriteConfig(
        trajectories=["t.jsonl"],
        output="b",
        judge=package.JudgeConfig("modular", captioner="given"),
        model=package.ModelConfig("mock", base_url=server.base_url),
    )
    assert str(package.batch_write(config)) == "3 requests in 1 files -> b"
    told = prill("batch", "write", "t.jsonl", "-o", "b", *judged(server))
    assert (told.returncode, "3 requests in 1 files -> b" in told.stderr) == (0, True), (
        "the same description"
    )
    submitted = package.batch_submit(package.BatchSubmitConfig(folder="b", wait=True, every=1))
    assert list(submitted.to_pandas()["fetched"]) == [True]
    result = package.batch_collect(package.BatchCollectConfig(folder="b", output="v.jsonl"))
    assert (result.tally.pending, result.requests, result.problem) == (0, (), None)
    online = {v.id: replace(v, seconds=0.0) for v in read_verdicts(tmp_path / "o.jsonl")}
    assert {v.id: replace(v, seconds=0.0) for v in result.verdicts()} == online


@pytest.mark.parametrize(
    "more", [{}, {"timeout": "30", "set": ["answer=true"]}], ids=["plain", "texts"]
)
def test_folder_of_an_earlier_version_goes_on(
    prill: Prill, server: BatchServer, tmp_path: Path, more: dict[str, Any]
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    flags = ("--timeout", "30", "--judge.answer") if more else ()
    words = ("batch", "write", "t.jsonl", "-o", "b", *judged(server), *flags)
    written = prill(*words)
    assert written.returncode == 0, written.stderr
    manifest = tmp_path / "b" / "batch.json"
    record = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(record | {"judge": OLD | {"base_url": server.base_url} | more}))
    again = prill(*words)
    assert (again.returncode, "3 requests in 1 files" in again.stderr) == (0, True), again.stderr
    assert json.loads(manifest.read_text())["judge"]["evaluator"] == "modular", "it stays as it was"
    assert prill("batch", "submit", "b", "--wait", "--every", "1").returncode == 0
    done = prill("batch", "collect", "b", "-o", "v.jsonl")
    assert done.returncode in (0, 3), done.stderr
    assert len(list(read_verdicts(tmp_path / "v.jsonl"))) == 3


def test_collect_takes_outputs_of_others(prill: Prill, server: BatchServer, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    prill("batch", "write", "t.jsonl", "-o", "b", *judged(server))
    with (tmp_path / "out.jsonl").open("w") as file:
        for line in (tmp_path / "b" / "requests-01-001.jsonl").read_text().splitlines()[:2]:
            choice = {
                "message": {"content": "Thoughts: fine\nStatus: success"},
                "finish_reason": "stop",
            }
            response = {"status_code": 200, "body": {"choices": [choice]}}
            file.write(
                json.dumps(
                    {"id": "x", "custom_id": json.loads(line)["custom_id"], "response": response}
                )
                + "\n"
            )
    done = prill("batch", "collect", "b", "out.jsonl", "-o", "v.jsonl")
    assert (done.returncode, "1 trajectories wait for answers" in done.stderr) == (5, True)
    assert len(list(read_verdicts(tmp_path / "v.jsonl"))) == 2
    assert (tmp_path / "v.transcripts").is_dir()


def test_options_of_a_batch_do_not_change(
    prill: Prill, server: BatchServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    assert (
        prill("batch", "write", "t.jsonl", "-o", "b", "--limit", "2", *judged(server)).returncode
        == 0
    )
    assert (
        "2 trajectories wait for answers" in prill("batch", "collect", "b", "-o", "v.jsonl").stderr
    )
    elsewhere = prill(
        "batch", "write", "t.jsonl", "-o", "b", *judged(server)[:-1], "http://elsewhere/v1"
    )
    assert elsewhere.returncode == 2
    assert "with other options (model.base_url http://127.0.0.1" in elsewhere.stderr
    assert (
        "3 requests in 2 files"
        in prill("batch", "write", "t.jsonl", "-o", "b", *judged(server)).stderr
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ("write", "t.jsonl", "-o", "b", "--judge", "always-fail"),
            "calls no model at an endpoint",
        ),
        (
            ("write", "t.jsonl", "-o", ".", "--judge", "vlm", "--model", "m"),
            "contains files that do not belong to a batch",
        ),
        (
            ("write", "-", "-o", "b", "--judge", "vlm", "--model", "m"),
            "reads its trajectories again later",
        ),
        (
            (
                "write",
                "t.jsonl",
                "-o",
                "b",
                "--judge",
                "vlm",
                "--model",
                "gpt-4o",
                "--budget-usd",
                "1",
            ),
            "cannot enforce a budget",
        ),
        (
            ("write", "t.jsonl", "-o", "x" * 300, "--judge", "vlm", "--model", "m"),
            "File name too long",
        ),
        (("submit", "nowhere"), "nowhere: No such file"),
        (("collect", ".", "-o", "v.jsonl"), "not a batch folder"),
    ],
)
def test_misuse_of_batch_is_one_error(
    prill: Prill, tmp_path: Path, command: tuple[str, ...], words: str
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    done = prill("batch", *command)
    assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (
        2,
        True,
        False,
    ), done.stderr
    assert not (tmp_path / "b" / "batch.json").exists()


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
            lambda record: record | {"judge": changed(record, "judge", name=["x"])},
            "batch.json: judge.name: expected the name",
        ),
        (
            lambda record: record | {"judge": record["judge"] | {"model": 5}},
            "batch.json: model: expected the name of a model",
        ),
        (
            lambda record: record | {"judge": record["judge"] | {"modell": {}}},
            "batch.json: judge.modell: unknown option",
        ),
        (
            lambda record: record | {"judge": changed(record, "model", timeout="soon")},
            "timeout: Expected `float`",
        ),
        (
            lambda record: record | {"judge": OLD | {"evaluator": ["x"]}},
            "batch.json: judge.evaluator: expected a string",
        ),
        (
            lambda record: record | {"judge": OLD | {"model": 5}},
            "batch.json: judge.model: expected a string, got 5",
        ),
        (lambda record: record | {"judge": OLD | {"timeout": "soon"}}, "timeout: Expected `float`"),
        (
            lambda record: record | {"judge": OLD | {"framse": "2"}},
            "unknown options: framse",
        ),
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
    prill("batch", "write", "t.jsonl", "-o", "b", *judged(server))
    manifest = tmp_path / "b" / "batch.json"
    manifest.write_text(json.dumps(change(json.loads(manifest.read_text()))))
    before = manifest.read_bytes()
    done = prill("batch", "collect", "b", "-o", "v.jsonl")
    assert (done.returncode, words in done.stderr, len(done.stderr.splitlines())) == (2, True, 1), (
        done.stderr
    )
    assert manifest.read_bytes() == before and not (tmp_path / "v.jsonl").exists()


def test_endpoint_without_batches_is_named(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 1)
    with BatchServer(refuse_key=True) as closed:
        prill("batch", "write", "t.jsonl", "-o", "b", *judged(closed), "--api-key-env", "MY_KEY")
        done = prill("batch", "submit", "b", MY_KEY="sk-secret-7")
    gone = prill("batch", "submit", "b", MY_KEY="sk-secret-7")
    assert (done.returncode, gone.returncode) == (2, 2)
    assert "requests-01-001.jsonl cannot be submitted" in gone.stderr
    assert (
        "sk-secret" not in done.stderr + gone.stderr + (tmp_path / "b" / "batch.json").read_text()
    )


def test_waiting_outlasts_a_problem(prill: Prill, server: BatchServer, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    for limit in ("1", "3"):
        prill("batch", "write", "t.jsonl", "-o", "b", "--limit", limit, *judged(server))
    manifest = tmp_path / "b" / "batch.json"
    record = json.loads(manifest.read_text())
    record["files"][0]["base_url"] = "http://127.0.0.1:9/v1"
    manifest.write_text(json.dumps(record))
    done = prill("batch", "submit", "b", "--wait", "--every", "1")
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, " completed, 2 done and 0 failed of 2" in done.stderr) == (2, True), (
        done.stderr
    )
    assert last.startswith(
        "prill batch submit: requests-01-001.jsonl cannot be submitted: cannot reach "
        "http://127.0.0.1:9"
    ), last
    record = json.loads(manifest.read_text())
    record["files"][0]["base_url"] = server.base_url
    manifest.write_text(json.dumps(record))
    assert prill("batch", "submit", "b", "--wait", "--every", "1").returncode == 0
    assert prill("batch", "collect", "b", "-o", "v.jsonl").returncode == 0
    assert len(list(read_verdicts(tmp_path / "v.jsonl"))) == 3


def test_problem_of_a_batch_costs_no_verdict(
    prill: Prill, server: BatchServer, tmp_path: Path
) -> None:
    write_trajectories(tmp_path / "t.jsonl", 3)
    prill("batch", "write", "t.jsonl", "-o", "b", "--limit", "1", *judged(server))
    prill("batch", "write", "t.jsonl", "-o", "b", *judged(server))
    prill("batch", "submit", "b")
    manifest = json.loads((tmp_path / "b" / "batch.json").read_text())
    manifest["files"][0]["batch"] = "batch_unknown"
    (tmp_path / "b" / "batch.json").write_text(json.dumps(manifest))
    for _ in range(3):
        done = prill("batch", "collect", "b", "-o", "v.jsonl")
    assert (done.returncode, ("batch batch_unknown cannot be downloaded") in done.stderr) == (
        2,
        True,
    ), done.stderr
    assert len(list(read_verdicts(tmp_path / "v.jsonl"))) == 2
