"""Files are safe from every command: what they read, what they write, and what they refuse to write
over.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
from pathlib import Path

import pytest

from prill.evaluators.agreement.agreement import Disagreement
from prill.io.store import encode, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Verdict
from tests.support.commands.command import Prill, write_trajectories
from tests.support.paths import SUPPORT

JUDGE = EvaluatorInfo("always-fail", "1")
GOLDEN = SUPPORT / "golden"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """One file of every kind in `tmp_path`, and one that prill does not know."""
    write_trajectories(tmp_path / "t.jsonl", 60)
    ids = [f"t{i}" for i in range(60)]
    labels = [LabelRecord(id=id, success=i % 3 == 0) for i, id in enumerate(ids)]
    verdicts = [
        Verdict(id=id, success=i % 2 == 0, score=i / 60, evaluator=JUDGE)
        for i, id in enumerate(ids)
    ]
    differing = Disagreement(
        kind="false positive",
        id="t1",
        goal=None,
        label=False,
        score=1.0,
        unscored=None,
        reason="",
        annotators=(),
    )
    contents = {
        "l.jsonl": b"".join(map(encode, labels)),
        "v.jsonl": b"".join(map(encode, verdicts)),
        "d.jsonl": encode(differing),
        "r.html": (
            b'<!doctype html>\n<meta charset="utf-8">\n<meta name="generator" '
            b'content="prill report">\n'
        ),
        "c.svg": b"<svg xmlns='http://www.w3.org/2000/svg'></svg>",
        "table.csv": b"id,success,score,unscored\n",
        "red.json": b'{"attacks_version":"1","effects":[]}\n',
        "notes.txt": b"mine\n",
        "archive.gz": gzip.compress(b"mine\n"),
        "calibration.json": (GOLDEN / "calibration.json").read_bytes(),
        "prior.json": (GOLDEN / "prior.json").read_bytes(),
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


# What each command writes: the words before the output, and the files that it may be written over.
FAIL = ("--judge", "always-fail")
WRITERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "score": (("score", "t.jsonl", *FAIL, "-o"), {"v.jsonl"}),
    "score again": (("score", "t.jsonl", *FAIL, "--no-resume", "-o"), {"v.jsonl"}),
    "fit": (("fit", "t.jsonl", "l.jsonl", "--kind", "prior", "-o"), {"prior.json"}),
    "calibrate": (("calibrate", "v.jsonl", "l.jsonl", "-o"), {"calibration.json"}),
    "calibrate, plotted": (
        ("calibrate", "v.jsonl", "l.jsonl", "-o", "new.json", "--plot"),
        {"c.svg"},
    ),
    "report": (
        ("report", "t.jsonl", "--verdicts", "v.jsonl", "--labels", "l.jsonl", "-o"),
        {"r.html"},
    ),
    "table": (("table", "v.jsonl", "--format", "csv", "-o"), {"table.csv"}),
    "agree": (("agree", "v.jsonl", "l.jsonl", "--disagreements"), {"d.jsonl"}),
    "annotate": (("annotate", "t.jsonl", "--annotator", "ada", "-o"), {"l.jsonl"}),
}
# What is written into a folder: the words before it, and the file in it that is in the way.
INTO_FOLDERS = {
    "redteam": (("redteam", "t.jsonl", "l.jsonl", *FAIL, "-o"), "redteam.json"),
    "redteam's verdicts": (("redteam", "t.jsonl", "l.jsonl", *FAIL, "-o"), "before.jsonl"),
    "rollout": (
        ("rollout", "miniwob", "--policy", "scripted", "--tasks", "click-test", "-o"),
        "trajectories.jsonl",
    ),
    "convert": (("convert", "agent-eval-refine", ".", "-o"), "labels.jsonl"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_command_destroys_a_file(
    writer: str, prill: Prill, files: dict[str, bytes], tmp_path: Path
) -> None:
    words, own = WRITERS[writer]
    for name in files.keys() - own:
        done = prill(*words, name)
        assert (done.returncode, done.stdout) == (2, ""), (name, done.stderr)
        assert f"{name}:" in done.stderr
        assert "choose another file (-" in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == files


@pytest.mark.parametrize("writer", INTO_FOLDERS)
def test_no_folder_is_written_over(
    writer: str, prill: Prill, files: dict[str, bytes], tmp_path: Path
) -> None:
    words, name = INTO_FOLDERS[writer]
    (tmp_path / "out").mkdir()
    for other in (
        ("t.jsonl", "l.jsonl", "notes.txt")
        if name != "trajectories.jsonl"
        else ("v.jsonl", "l.jsonl")
    ):
        shutil.copy(tmp_path / other, tmp_path / "out" / name)
        done = prill(*words, "out")
        assert done.returncode == 2, (other, done.stderr)
        assert "choose another" in done.stderr
        assert (tmp_path / "out" / name).read_bytes() == files[other]


@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "annotate"])
def test_folders_of_outputs_are_made(
    writer: str, prill: Prill, files: dict[str, bytes], tmp_path: Path
) -> None:
    words, own = WRITERS[writer]
    assert prill(*words, "deep/er/out").returncode == 0
    for name in own - {"v.jsonl"}:
        assert prill(*words, name).returncode == 0, "one of its own kind is replaced"
        assert (tmp_path / name).read_bytes() == (tmp_path / "deep/er/out").read_bytes()


@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "annotate"])
def test_a_dash_is_standard_output(
    writer: str, prill: Prill, files: dict[str, bytes], tmp_path: Path
) -> None:
    words, _ = WRITERS[writer]
    done, again = prill(*words, "-"), prill(*words, "out")
    assert (done.returncode, again.returncode) == (0, 0), done.stderr
    if writer.startswith("score"):
        verdicts = [json.loads(line)["id"] for line in done.stdout.splitlines()]
        assert verdicts == [f"t{i}" for i in range(60)]
    else:
        assert done.stdout.encode() == (tmp_path / "out").read_bytes(), (
            "nothing else is printed there"
        )
    assert not (tmp_path / "-").exists()


READERS: dict[str, tuple[tuple[str, ...], str]] = {
    "score": (("score", "-", *FAIL, "-o", "-"), "t.jsonl"),
    "table": (("table", "-"), "v.jsonl"),
    "agree": (("agree", "-", "l.jsonl"), "v.jsonl"),
    "agree, labels": (("agree", "v.jsonl", "-"), "l.jsonl"),
    "fit": (("fit", "-", "l.jsonl", "--kind", "prior", "-o", "-"), "t.jsonl"),
    "report": (("report", "-", "-o", "-"), "t.jsonl"),
    "check": (("check", "-"), "t.jsonl"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_a_dash_is_standard_input(
    reader: str,
    packed: bool,
    prill: Prill,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, name = READERS[reader]
    data = gzip.compress(files[name]) if packed else files[name]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    piped = prill(*words)
    direct = prill(
        *(name if word == "-" and place < 3 else word for place, word in enumerate(words))
    )
    assert (piped.returncode, piped.returncode) == (0, direct.returncode), piped.stderr
    assert steady(piped.stdout) == steady(direct.stdout.replace(name, "-"))


def steady(text: str) -> list[str]:
    """The lines without what differs from run to run."""
    return [line.partition('"seconds"')[0].partition('"card"')[0] for line in text.splitlines()]


def test_folders_are_inputs_of_all(prill: Prill, files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("t.jsonl", "l.jsonl"):
        shutil.copy(tmp_path / name, tmp_path / "runs")
    os.mkfifo(tmp_path / "runs/pipe.jsonl")  # reading it would block
    for words in (
        ("score", "runs", *FAIL, "-o", "new.jsonl"),
        ("fit", "runs", "l.jsonl", "--kind", "prior", "-o", "new.json"),
        ("report", "runs", "-o", "new.html"),
        ("redteam", "runs", "l.jsonl", *FAIL, "-o", "new"),
    ):
        done = prill(*words)
        assert done.returncode == 0, done.stderr
        assert (
            done.stderr.count(f"prill {words[0]}: runs: not read as trajectories: l.jsonl (labels)")
            == 1
        )
    assert len(list(read_verdicts(tmp_path / "new.jsonl"))) == 60
    agreement = json.loads(
        prill("agree", "v.jsonl", "l.jsonl", "--trajectories", "runs", "--json").stdout
    )
    assert agreement["clustered_by"] == "task"
    checked = prill("check", "runs").stdout
    assert (
        checked
        == "runs/l.jsonl: labels, 60 good lines\nruns/t.jsonl: trajectories, 60 good lines\n"
    )
    assert prill("score", "runs", *FAIL, "-o", "runs/t.jsonl").returncode == 2


def test_beginning_again_keeps_every_backup(
    prill: Prill, files: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "link.jsonl").symlink_to("v.jsonl")
    for _ in range(3):
        assert prill("score", "t.jsonl", *FAIL, "--no-resume", "-o", "link.jsonl").returncode == 0
    assert (tmp_path / "v.jsonl.bak").read_bytes() == files["v.jsonl"]
    assert all(
        len(list(read_verdicts(tmp_path / name))) == 60
        for name in ("v.jsonl", "v.jsonl.bak2", "v.jsonl.bak3")
    )
    assert (tmp_path / "link.jsonl").is_symlink()
