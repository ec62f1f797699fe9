"""`prill report` on the samples, and on files that are not as they should be."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path

import pytest

from prill import ReportConfig, report
from prill.io.store import encode, iter_trajectories, read_labels
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict
from tests.support.commands.command import Prill, environment, write_trajectories
from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets" / "samples" / "miniwob"


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    """A judge that goes by the first word of the goal."""
    info = EvaluatorInfo("click-lover", "1")
    with (tmp_path / "v.jsonl").open("wb") as file:
        for item in iter_trajectories(SAMPLES / "trajectories.jsonl"):
            assert isinstance(item, Trajectory)
            success = item.task.goal.startswith("Click")
            file.write(
                encode(Verdict(id=item.id, success=success, score=float(success), evaluator=info))
            )
    return tmp_path / "v.jsonl"


def test_samples_make_a_page(prill: Prill, tmp_path: Path, verdicts: Path) -> None:
    given = (
        SAMPLES / "trajectories.jsonl",
        "--verdicts",
        verdicts,
        "--labels",
        SAMPLES / "labels.jsonl",
    )
    done = prill("report", *given, "-o", "r.html", "--json")
    assert done.returncode == 0
    counts = json.loads(done.stdout)
    size = (tmp_path / "r.html").stat().st_size
    assert counts | {"images_elsewhere": 0} == {
        "output": "r.html",
        "bytes": size,
        "trajectories": 186,
        "broken": 0,
        "missing_images": 0,
        "images_elsewhere": 0,
        "fitted": {},
    }
    assert counts["images_elsewhere"] > 0
    assert "embed stores them in the page" in done.stderr


def test_broken_lines_and_lost_images_told(prill: Prill, tmp_path: Path) -> None:
    path = write_trajectories(tmp_path / "t.jsonl", 2, screenshot="gone.png")
    with path.open("a") as file:
        file.write('{"id": "half"')
    done = prill("report", path, "-o", "r.html", "--json")
    assert done.returncode == 3
    counts = json.loads(done.stdout)
    assert (counts["trajectories"], counts["broken"], counts["missing_images"]) == (2, 1, 1)
    assert "t.jsonl:3: not valid JSON" in done.stderr
    assert "gone.png: missing, or not an image" in done.stderr
    assert "t.jsonl:3: not valid JSON" in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verdicts", "none.jsonl"), "none.jsonl: no such file"),
        (
            ("--labels", "both.jsonl"),
            "several sources (human, oracle); choose one source (--source)",
        ),
        (("--labels", "both.jsonl", "--source", "robot"), "no label has source 'robot'"),
        (("-o", "t.jsonl/r.html"), "t.jsonl/r.html: cannot be written"),
    ],
)
def test_bad_usage_is_told_without_a_page(
    prill: Prill, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    path = write_trajectories(tmp_path / "t.jsonl", 2)
    both = (LabelRecord(id="t0", success=True, source=source) for source in ("human", "oracle"))
    (tmp_path / "both.jsonl").write_bytes(b"".join(map(encode, both)))
    done = prill("report", path, "-o", "r.html", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(found.name for found in tmp_path.iterdir()) == ["both.jsonl", "t.jsonl"]


def test_example_page_has_two_judges(tmp_path: Path) -> None:
    prill = f"{Path(sys.executable).parent}/prill"
    command = [str(ROOT / "examples" / "report.sh"), str(tmp_path / "out")]
    subprocess.run(
        command, cwd=ROOT, env={**environment(), "PRILL": prill}, check=True, capture_output=True
    )
    text = (tmp_path / "out" / "report.html").read_text("utf-8")
    overview = json.loads(text.split('id="overview">', 1)[1].split("</script>", 1)[0])
    truth = {label.id: label.success for label in read_labels(SAMPLES / "labels.jsonl")}
    assert overview["judges"] == ["self-report", "always-fail"]
    assert {row["id"]: row["truth"] == "success" for row in overview["rows"]} == truth
    assert {row["outcomes"][1] for row in overview["rows"]} == {"failure"}
    assert (tmp_path / "out" / "report.html").stat().st_size < 3_000_000


def test_report_in_python_is_that_of_the_command(
    prill: Prill, tmp_path: Path, verdicts: Path
) -> None:
    """And a notebook shows it: the page itself where its images are in it, else its file, in a
    frame that may run scripts.
    """
    runs = SAMPLES / "trajectories.jsonl"
    config = ReportConfig(
        trajectories=[runs], output=tmp_path / "r.html", verdicts=[verdicts], embed=True, limit=2
    )
    result = report(config)
    page = (tmp_path / "r.html").read_bytes()
    assert (
        prill(
            "report", runs, "-o", "r.html", "--verdicts", verdicts, "--embed", "--limit", 2
        ).returncode
        == 0
    )
    assert (tmp_path / "r.html").read_bytes() == page
    shown = result._repr_html_()
    assert shown.count("<iframe") == 1 and 'sandbox="allow-scripts"' in shown
    assert html.unescape(shown.split('srcdoc="', 1)[1].rsplit('"></iframe>', 1)[0]).encode() == page
    assert (
        'src="' in (linked := report(config.copy_with(embed=False))._repr_html_())
        and len(linked) < 1000
    )
