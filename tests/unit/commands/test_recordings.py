"""Commands on logs of other tools: recognised by their content, judged with their pictures, and
reported where they are.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import prill as library
from prill.captioner.cache import image_id
from prill.captioner.files import read_captions
from prill.io.store import read_verdicts
from tests.support.commands.command import Prill
from tests.support.commands.endpoint import Endpoint
from tests.unit.datasets.formats.test_atif import document
from tests.unit.datasets.reading.test_chat import PIXEL

USER = {"role": "user", "content": "Buy green tea"}
SHOWN = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL.partition(",")[2]},
}
CALL = {"type": "tool_use", "id": "a", "name": "navigate", "input": {"url": "http://shop/"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [SHOWN]}
RUN = [
    USER,
    {"role": "assistant", "content": [CALL]},
    {"role": "user", "content": [RESULT]},
    {"role": "assistant", "content": "Bought."},
]
SUCCESS = ("--judge", "always-success")


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def temporary() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("prill-recording-*"))


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests make files there, too
    lines(folder / "calls.log", {"id": "one", "messages": RUN}, {"id": "two", "messages": RUN[:2]})
    return folder


def test_a_log_is_scored_whatever_its_name(prill: Prill, logs: Path) -> None:
    done = prill("score", "logs/calls.log", "-o", "v.jsonl", *SUCCESS)
    assert (done.returncode, [verdict.id for verdict in read_verdicts("v.jsonl")]) == (
        0,
        ["one", "two"],
    )
    again = prill("score", "logs/calls.log", "-o", "v.jsonl", *SUCCESS)
    assert "2 already in the file" in again.stderr and not temporary()


def test_its_pictures_reach_the_judge(prill: Prill, logs: Path) -> None:
    with Endpoint(lambda text: 'Thoughts: It is bought.\nStatus: "success"') as endpoint:
        command = (
            "score",
            "logs/calls.log",
            "-o",
            "v.jsonl",
            "--judge",
            "vlm",
            *endpoint.words,
            "--limit",
            1,
        )
        done = prill(*command)
    assert done.returncode == 0, done.stderr
    assert len(endpoint.pictures) == 1 and "Buy green tea" in json.dumps(endpoint.bodies)


def test_what_is_of_no_known_format_is_told_what_to_do(prill: Prill, tmp_path: Path) -> None:
    lines(tmp_path / "other.jsonl", {"foo": 1}, {"foo": 2})
    done = prill("score", "other.jsonl", "-o", "v.jsonl", *SUCCESS)
    assert done.returncode == 2
    assert "if this is another tool's log, name its format" in done.stderr


def test_a_broken_run_is_unscored(prill: Prill, tmp_path: Path) -> None:
    lines(tmp_path / "runs.jsonl", {"id": "one", "messages": RUN}, {"id": "two", "messages": 5})
    done = prill("score", "runs.jsonl", "-o", "v.jsonl", *SUCCESS)
    assert done.returncode == 3
    one, two = read_verdicts("v.jsonl")
    assert (one.success, two.success, two.unscored) == (True, None, "input")
    assert "runs.jsonl:2" in two.reason and "messages" in two.reason
    checked = prill("check", "runs.jsonl", "--json")
    (report,) = json.loads(checked.stdout)
    assert (checked.returncode, report["file"], report["good"], report["broken"]) == (
        3,
        "runs.jsonl",
        1,
        1,
    )
    assert report["notes"] == ["read as messages"] and "runs.jsonl:2" in report["problems"][0]


def test_what_several_formats_know_must_be_named(prill: Prill, logs: Path) -> None:
    (logs / "run.json").write_text(json.dumps(document()))
    (logs / "calls.log").rename(logs / "calls.jsonl")
    done = prill("score", "logs", "-o", "v.jsonl", *SUCCESS)
    assert (
        done.returncode == 2
        and "logs: could be of the formats atif, messages; name files of one of them, or say which "
        "one (--format)"
        in done.stderr
    )
    assert prill("score", "logs", "-o", "v.jsonl", *SUCCESS, "--format", "messages").returncode == 0
    assert len(list(read_verdicts("v.jsonl"))) == 2
    converted = prill("convert", "logs", "-o", "out")
    assert converted.returncode == 2 and "atif, messages" in converted.stderr


def test_goals_stand_in_for_missing_ones(prill: Prill, tmp_path: Path) -> None:
    run = [{"role": "assistant", "content": [CALL]}]
    path = lines(
        tmp_path / "runs.jsonl",
        *({"id": id, "messages": run} for id in ("a", "b")),
        {"id": "c", "messages": RUN},
    )
    done = prill("score", path, "-o", "v.jsonl", *SUCCESS)
    assert done.returncode == 3 and [v.unscored for v in read_verdicts("v.jsonl")] == [
        "input",
        "input",
        None,
    ]
    (tmp_path / "goals.json").write_text('{"a": "Sell tea"}')
    assert (
        prill(
            "convert", path, "-o", "out", "--goals", "goals.json", "--goal", "Brew tea"
        ).returncode
        == 0
    )
    goals = {t.id: t.task.goal for t in library.read_trajectories("out/trajectories.jsonl")}
    assert goals == {"a": "Sell tea", "b": "Brew tea", "c": "Buy green tea"}
    done = prill("score", path, "-o", "u.jsonl", *SUCCESS, "--goals", "goals.json")
    assert done.returncode == 3
    (missing,) = (v.reason for v in read_verdicts("u.jsonl") if v.unscored)
    assert "the file of goals has none for it" in missing
    lines(tmp_path / "goals.json", {"id": "a", "goal": "Sell tea"}, {"id": "b"})
    done = prill("score", path, "-o", "w.jsonl", *SUCCESS, "--goals", "goals.json")
    assert (
        done.returncode == 2 and "goals.json:2: expected an object with id and goal" in done.stderr
    )
    only = lines(tmp_path / "only.jsonl", {"id": "a", "messages": run})
    done = prill("score", only, "-o", "w.jsonl", *SUCCESS)
    assert (
        done.returncode == 2 and "has no goal" in done.stderr and "--goal, --goals" in done.stderr
    )


def test_a_report_holds_the_pictures_of_a_log(prill: Prill, logs: Path) -> None:
    prill("score", "logs/calls.log", "-o", "v.jsonl", *SUCCESS)
    assert (
        prill("report", "logs/calls.log", "--verdicts", "v.jsonl", "-o", "r.html").returncode == 0
    )
    page = Path("r.html").read_text()
    assert "Buy green tea" in page and "data:image/" in page and "prill-recording" not in page


def test_captions_of_the_pictures_of_a_log(prill: Prill, logs: Path) -> None:
    with Endpoint(lambda text: "A page with tea.") as endpoint:
        command = ("caption", "logs/calls.log", "-o", "c.jsonl", *endpoint.words)
        assert "1 images to caption" in prill(*command, "--dry-run").stdout
        assert not Path("images").exists(), "a plan copies nothing"
        assert prill(*command).returncode == 0
        assert "0 captions made, 1 already in the file" in prill(*command).stderr
    (caption,) = read_captions("c.jsonl")
    assert caption.caption == "A page with tea."
    assert Path(caption.image).parent == Path("images"), "the log's own is gone with the run"
    assert image_id(caption.image) == caption.id


@pytest.mark.parametrize("form", ["list", "object"])
def test_a_json_log_is_no_configuration(form: str, prill: Prill, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Buy tea"}, {"role": "assistant", "content": "Done."}]
    content = messages if form == "list" else {"goal": "Buy tea", "messages": messages}
    (tmp_path / "x.json").write_text(json.dumps(content))
    done = prill("convert", "x.json", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "1 trajectories" in done.stderr
    (tmp_path / "c.json").write_text(json.dumps({"source": "x.json", "output": "again"}))
    assert prill("convert", "c.json").returncode == 0
    assert (tmp_path / "again/trajectories.jsonl").exists()


def test_logs_of_one_name_are_no_duplicates(prill: Prill, tmp_path: Path) -> None:
    for folder, word in (("a", "tea"), ("b", "soap")):
        (tmp_path / folder).mkdir()
        messages = [
            {"role": "user", "content": f"Buy {word}"},
            {"role": "assistant", "content": "Done."},
        ]
        (tmp_path / folder / "history.json").write_text(json.dumps(messages))
    logs = ("a/history.json", "b/history.json")
    assert prill("score", *logs, "-o", "v.jsonl", "--judge", "always-fail").returncode == 0
    ids = {json.loads(line)["id"] for line in (tmp_path / "v.jsonl").read_text().splitlines()}
    assert ids == {"a/history", "b/history"}
    for paths in (("a", "b"), ("a/history.json", "b"), ("b/../a", "./b")):
        out = f"{len(list(tmp_path.iterdir()))}.jsonl"
        assert prill("score", *paths, "-o", out, "--judge", "always-fail").returncode == 0
        found = [json.loads(line)["id"] for line in (tmp_path / out).read_text().splitlines()]
        assert sorted(found) == ["a/history", "b/history"], paths
    same = ("a/history.json", "a/history.json")  # which are duplicates
    assert (
        prill("score", "a", "a/history.json", "-o", "u.jsonl", "--judge", "always-fail").returncode
        == 3
    )
    assert prill("score", *same, "-o", "w.jsonl", "--judge", "always-fail").returncode == 3
