"""`prill rate` on files, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import encode, encode_trajectory
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Eighty trajectories of two agents and twenty tasks, the last without verdict and one
    unscored; half are labelled.
    """
    judge = EvaluatorInfo("modular", "1", "m")
    verdicts = [Verdict(id="0", unscored="parse", evaluator=judge)]
    verdicts += [Verdict(id=str(i), success=i % 3 == 0, evaluator=judge) for i in range(1, 79)]
    labels = [LabelRecord(id=str(i), success=i % 3 == 0 or i % 7 == 0) for i in range(0, 80, 2)]
    labels += [LabelRecord(id="elsewhere", success=True), LabelRecord(id="1", success=None)]
    runs = [
        Trajectory(id=str(i), agent="ab"[i // 2 % 2], task=Task(id=f"t{i % 20}", goal="g"))
        for i in range(80)
    ]
    paths = [tmp_path / name for name in ("v.jsonl", "l.jsonl", "t.jsonl")]
    paths[0].write_bytes(b"".join(map(encode, verdicts)))
    paths[1].write_bytes(b"".join(map(encode, labels)))
    paths[2].write_bytes(b"".join(encode_trajectory(run, tmp_path) for run in runs))
    return list(map(str, paths))


def test_page_tells_rates_and_what_was_left_out(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels, runs = files
    assert main(["rate", verdicts, labels, "--trajectories", runs, "--by", "agent"]) == 0
    page = capsys.readouterr().out
    shown = {line[:29].strip(): line[29:].split() for line in page.splitlines()}
    assert shown["judge, uncorrected"] == ["0.333", "-"]
    assert shown["labels alone"][0] == "0.450"
    assert float(shown["corrected, PPI++"][1]) < 0.45 < float(shown["corrected, PPI++"][3])
    assert "40 of 80 trajectories, of 10 tasks" in page
    assert "Unscored: 2 (parse 1, no verdict 1), 1 of them labelled" in page
    assert "Undecided labels, not used: 1\nRuns without a verdict: 1 of 80 (" in page
    assert "Not used: 1 labels of other runs" in page
    assert "By agent" in page


def test_parts_with_few_labels_are_few_rows(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels, runs = files
    assert main(["rate", verdicts, labels, "--trajectories", runs, "--by", "task"]) == 0
    table = capsys.readouterr().out.partition("By task")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.endswith("!") for line in table] == [True] * 5 + [False]
    assert table[-1] == (
        "! fewer than 30 labels: unreliable; 15 more such parts are in the JSON output"
    )


def test_json_and_python_say_the_same(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, labels, runs = files
    assert main(["rate", *files[:2], "--trajectories", runs, "--width", "0.2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    config = prill.RateConfig(verdicts=[verdicts], labels=labels, trajectories=runs, width=0.2)
    result = prill.rate(config)
    assert told["all"]["ppi"]["value"] == pytest.approx(result.all.ppi.value)
    assert told["all"]["more_labels"] == result.all.more_labels
    assert told["unscored"] == {"parse": 1, "no verdict": 1}


def test_what_cannot_be_told_is_refused(files: list[str], tmp_path: Path) -> None:
    verdicts, labels, _ = files
    with pytest.raises(UsageError, match="by needs trajectories"):
        prill.RateConfig(verdicts=[verdicts], labels=labels, by=["agent"]).check()
    other = tmp_path / "other.jsonl"
    other.write_bytes(encode(LabelRecord(id="elsewhere", success=True)))
    with pytest.raises(UsageError, match="no run has a decided label"):
        prill.rate(prill.RateConfig(verdicts=[verdicts], labels=str(other)))


def test_labels_of_an_informative_draw_count_by_their_chance(
    files: list[str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    verdicts, labels, _ = files
    records = [
        LabelRecord(id=str(i), success=i % 3 == 0, inclusion=0.2 if i % 3 else 0.8)
        for i in range(1, 60)
    ]
    Path(labels).write_bytes(b"".join(map(encode, records)))
    assert main(["rate", verdicts, labels]) == 0
    page = capsys.readouterr().out
    assert "each is weighted by the inverse of its probability" in page
    alone = next(line for line in page.splitlines() if line.startswith("labels alone"))
    assert float(alone.split()[2]) == pytest.approx(19 / 0.8 / (19 / 0.8 + 40 / 0.2), abs=1e-3)
    with caplog.at_level("WARNING"):
        prill.agree(prill.AgreeConfig(verdicts=[verdicts], labels=labels))
    assert "only `prill rate` weights them" in caplog.text
    with pytest.raises(UsageError, match="width: only available for labels"):
        prill.rate(prill.RateConfig(verdicts=[verdicts], labels=labels, width=0.1))


@pytest.mark.parametrize("other", [{}, {"inclusion": 0.5}], ids=["without", "another"])
def test_labels_of_two_draws_are_refused(files: list[str], other: dict[str, float]) -> None:
    verdicts, labels, _ = files
    twice = [
        LabelRecord(id="3", success=True, inclusion=0.3),
        LabelRecord(id="3", success=True, **other),
    ]
    Path(labels).write_bytes(b"".join(map(encode, twice)))
    with pytest.raises(UsageError, match="'3' has none, or has two"):
        prill.rate(prill.RateConfig(verdicts=[verdicts], labels=labels))


def test_the_plot_has_a_row_for_all_and_each_part(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "rates.svg"
    command = ["rate", *files[:2], "--trajectories", files[2], "--by", "agent"]
    assert main([*command, "--plot", str(out)]) == 0
    words = list(ElementTree.parse(out).getroot().itertext())
    assert {"all", "agent: a", "agent: b", "corrected, PPI++", "labels alone"} <= set(words)
    with pytest.raises(UsageError, match="plot"):
        prill.rate(prill.RateConfig(verdicts=[files[0]], labels=files[1], plot=files[1]))
