"""Commands on logs of other tools: recognised by their content, judged with their pictures, and
reported where they are.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

import prill as library
from prill.captioner.cache import image_id
from prill.captioner.files import read_captions
from prill.io.store import read_verdicts
from prill.runs.annotate import Opened
from prill.types import Observation
from tests.support.commands.command import Prill, write_trajectories
from tests.support.commands.endpoint import Endpoint
from tests.support.paths import SUPPORT
from tests.unit.datasets.formats.test_atif import document
from tests.unit.datasets.formats.test_openai_batch import PIXEL

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
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
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


def test_verdicts_may_be_next_to_the_logs(prill: Prill, logs: Path) -> None:
    (logs / "calls.log").rename(logs / "calls.jsonl")
    assert prill("score", "logs", "-o", "logs/v.jsonl", *SUCCESS).returncode == 0
    again = prill("score", "logs", "-o", "logs/v.jsonl", *SUCCESS)
    assert (again.returncode, "2 already in the file" in again.stderr) == (0, True)


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


def test_processes_share_a_log(prill: Prill, tmp_path: Path) -> None:
    lines(tmp_path / "many.jsonl", *({"id": str(i), "messages": RUN} for i in range(6)))
    assert prill("score", "many.jsonl", "-o", "v.jsonl", *SUCCESS, "--processes", 2).returncode == 0
    assert {verdict.id for verdict in read_verdicts("v.jsonl")} == set("012345")


def test_several_logs_and_trajectories_are_one_run(
    prill: Prill, logs: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text(json.dumps(document(session_id="three")))
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(base64.b64decode(PIXEL.partition(",")[2]))
    write_trajectories(tmp_path / "t.jsonl", 2)
    done = prill("score", "t.jsonl", "run.json", "logs/calls.log", "-o", "v.jsonl", *SUCCESS)
    assert done.returncode == 0 and len(list(read_verdicts("v.jsonl"))) == 5


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


def test_what_nobody_knows_is_refused_as_before(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Buy tea\n")
    done = prill("score", "notes.txt", "-o", "v.jsonl", *SUCCESS)
    assert done.returncode == 2 and "no trajectory could be read; notes.txt:1" in done.stderr
    assert "unknown format; choose one of" in prill("convert", "notes.txt", "-o", "out").stderr


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


def test_the_input_is_never_written(prill: Prill, logs: Path, tmp_path: Path) -> None:
    before = (logs / "calls.log").read_bytes()
    for command in (("score", *SUCCESS), ("report",), ("annotate", "--annotator", "me")):
        done = prill(command[0], "logs/calls.log", "-o", "logs/calls.log", *command[1:])
        assert done.returncode == 2 and "this is also an input" in done.stderr
    assert (logs / "calls.log").read_bytes() == before


def test_a_report_holds_the_pictures_of_a_log(prill: Prill, logs: Path) -> None:
    prill("score", "logs/calls.log", "-o", "v.jsonl", *SUCCESS)
    assert (
        prill("report", "logs/calls.log", "--verdicts", "v.jsonl", "-o", "r.html").returncode == 0
    )
    page = Path("r.html").read_text()
    assert "Buy green tea" in page and "data:image/" in page and "prill-recording" not in page


def test_python_reads_logs_as_the_command_does(logs: Path, tmp_path: Path) -> None:
    config = library.ScoreConfig(
        trajectories=[logs / "calls.log"],
        output=tmp_path / "v.jsonl",
        judge="always-fail",
        format=library.FormatConfig("messages"),
    )
    assert [verdict.success for verdict in library.score(config).verdicts()] == [False, False]
    assert (
        library.convert(
            library.ConvertConfig(source=logs / "calls.log", output=tmp_path / "out")
        ).report.trajectories
        == 2
    )


async def test_a_log_is_annotated(logs: Path, tmp_path: Path) -> None:
    stop, pages = asyncio.Event(), []

    def opened(page: Opened) -> None:
        pages.append(page)
        stop.set()

    config = library.AnnotateConfig(
        trajectories=[logs / "calls.log"], annotator="me", output=tmp_path / "l.jsonl"
    )
    await library.annotate_async(config, stop=stop, opened=opened)
    assert [page.total for page in pages] == [2]


def test_the_format_is_a_word_that_may_be_left_out(
    prill: Prill, logs: Path, tmp_path: Path
) -> None:
    """A file that is there is no name; what is neither is an unknown format."""
    for words in (
        ("logs/calls.log",),
        ("messages", "logs/calls.log"),
        ("logs/calls.log", "--format", "messages"),
    ):
        done = prill(
            "convert", *words, "-o", tmp_path / str(len(words)) / words[0].replace("/", "_")
        )
        assert done.returncode == 0, done.stderr
    assert (
        "unknown format 'mesages'"
        in prill("convert", "mesages", "logs/calls.log", "-o", "out").stderr
    )


@pytest.mark.parametrize("log", ["inspect/old-long.eval", "browser_use/long.json", "atif/run.json"])
def test_labels_reach_no_judge(log: str, prill: Prill, tmp_path: Path) -> None:
    """Nothing of what a log says of the outcome is in anything that a model is sent; also not what
    prill has put there.
    """
    source, judged = SUPPORT / "datasets/written" / log, tmp_path / f"judged-{Path(log).name}"
    if log.startswith("atif"):
        source = lines(tmp_path / "run.json", document())
        (tmp_path / "images").mkdir()
        (tmp_path / "images/a.png").write_bytes(base64.b64decode(PIXEL.partition(",")[2]))
    if (source.parent / "screenshots").is_dir():
        shutil.copytree(source.parent / "screenshots", tmp_path / "screenshots")
    assert (
        prill("score", source, "-o", "before.jsonl", *SUCCESS, "--goal", "Buy tea").returncode == 0
    )
    lines(
        tmp_path / "before.jsonl",
        *(
            msgspec.to_builtins(replace(v, reason="EXPLANATION"))
            for v in read_verdicts("before.jsonl")
        ),
    )
    format = log.partition("/")[0].replace("_", "-")
    assert (
        prill(
            "export", "before.jsonl", "--to", format, "--recording", source, "-o", judged
        ).returncode
        == 0
    )
    with Endpoint(lambda text: 'Thoughts: It is bought.\nStatus: "success"') as endpoint:
        command = (
            "score",
            judged,
            "-o",
            "v.jsonl",
            "--judge",
            "vlm",
            *endpoint.words,
            "--goal",
            "Buy tea",
        )
        assert prill(*command).returncode == 0
    sent = json.dumps(endpoint.bodies)
    assert endpoint.bodies and not [
        word for word in ("EXPLANATION", "TARGET", "quarter", "always-success") if word in sent
    ]


@pytest.fixture
def labelled(logs: Path, tmp_path: Path) -> Path:
    """Labels of the runs of a log: one success, one failure."""
    rows = (
        {"id": id, "success": success, "source": "human"}
        for id, success in (("one", True), ("two", False))
    )
    return lines(tmp_path / "labels.jsonl", *rows)


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


def test_captions_of_a_log_for_training_name_pictures_that_last(
    prill: Prill, logs: Path, tmp_path: Path
) -> None:
    """Also those that gave no row; pictures of trajectories stay where they are."""
    shot = tmp_path / "own.png"
    Image.new("L", (20, 10)).save(shot)
    state = Observation(screenshot=str(shot), caption="A dark page.")
    own = library.Trajectory(id="t", task=library.Task(goal="g"), steps=(), final=state)
    library.write_trajectories(tmp_path / "t.jsonl", [own])
    with Endpoint(lambda text: "A page with tea.") as endpoint:
        command = ("caption", "logs/calls.log", "t.jsonl", "-o", "rows", "--for-training")
        done = prill(*command, *endpoint.words)
    assert done.returncode == 0, done.stderr
    for caption in read_captions("rows/captions.jsonl"):
        assert image_id(str(tmp_path / "rows" / caption.image)) == caption.id
    dropped = [json.loads(line) for line in Path("rows/dropped.jsonl").read_text().splitlines()]
    assert all(Path(row["image"]).is_file() for row in dropped)
    assert not temporary()


def test_rows_of_a_log_keep_its_pictures(prill: Prill, logs: Path, tmp_path: Path) -> None:
    """The pictures of a log are unpacked for the run only, so the rows get copies; the record names
    the log.
    """
    asked = {"role": "user", "content": [{"type": "text", "text": "Buy green tea"}, SHOWN]}
    lines(logs / "calls.log", {"id": "one", "messages": [asked, *RUN[1:]]})
    assert prill("score", "logs/calls.log", "-o", "v.jsonl", *SUCCESS).returncode == 0
    done = prill("filter", "logs/calls.log", "--verdicts", "v.jsonl", "-o", "rows")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows/sft.jsonl").read_text().splitlines()]
    shown = [name for row in rows for name in row["images"]]
    assert shown and all((tmp_path / "rows" / name).is_file() for name in shown)
    manifest = json.loads((tmp_path / "rows/manifest.json").read_text())
    assert manifest["inputs"][0]["path"] == "logs/calls.log"


def test_a_judge_is_attacked_on_a_log(prill: Prill, labelled: Path) -> None:
    command = ("redteam", "logs/calls.log", "labels.jsonl", "-o", "red", "--judge", "self-report")
    done = prill(*command, "--attacks", "claim-stop", "--goal", "Buy tea", "--format", "messages")
    assert done.returncode == 0, done.stderr
    assert len(list(read_verdicts("red/before.jsonl"))) == 2


def test_a_judge_is_fitted_on_logs(prill: Prill, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    count = 24
    lines(
        tmp_path / "many.jsonl",
        *(
            {
                "id": str(i),
                "messages": [
                    {"role": "user", "content": f"Buy tea {i}"},
                    *(RUN[1:] if i % 2 else RUN[1:2]),
                ],
            }
            for i in range(count)
        ),
    )
    labels = ({"id": str(i), "success": i % 2 == 1, "source": "human"} for i in range(count))
    lines(tmp_path / "labels.jsonl", *labels)
    done = prill("fit", "many.jsonl", "labels.jsonl", "-o", "m.json", "--kind", "prior")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.json").is_file()
