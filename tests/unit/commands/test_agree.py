"""`prill agree` on files, as a user runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import encode, encode_trajectory
from prill.types import (
    EvaluatorInfo,
    LabelRecord,
    Task,
    Trajectory,
    Verdict,
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Ten trajectories of five tasks; the judge is wrong about the last and did not judge the
    first.
    """
    judge = EvaluatorInfo("modular", "1", "m")
    verdicts = [Verdict(id="0", unscored="parse", evaluator=judge)]
    verdicts += [
        Verdict(id=str(i), success=i % 2 == 0 or i == 9, evaluator=judge) for i in range(1, 10)
    ]
    labels = [
        LabelRecord(id=str(i), success=i % 2 == 0, source=source)
        for i in range(10)
        for source in ("human", "oracle")
    ]
    trajectories = [Trajectory(id=str(i), task=Task(id=f"t{i // 2}", goal="g")) for i in range(10)]
    paths = [tmp_path / name for name in ("verdicts.jsonl", "labels.jsonl", "trajectories.jsonl")]
    paths[0].write_bytes(b"".join(map(encode, verdicts)))
    paths[1].write_bytes(b"".join(map(encode, labels)))
    paths[2].write_bytes(b"".join(encode_trajectory(t, tmp_path) for t in trajectories))
    return str(paths[0]), str(paths[1]), str(paths[2])


def test_table_has_figures_and_unscored(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels, trajectories = files
    assert (
        main(["agree", verdicts, labels, "--source", "human", "--trajectories", trajectories]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    shown = {line[:29].strip(): line[29:].split() for line in lines}
    assert shown["accuracy"][0] == "0.889"
    assert shown["accuracy, unscored as wrong"][0] == "0.800"
    assert shown["always failure"][0] == "0.556"
    assert any("prior" in line and "at least 10 of each" in line for line in lines)
    assert any(" than the best rule, " in line for line in lines), lines
    assert [line.split()[-2:] for line in lines if line.startswith("judged ")] == [
        ["4", "1"],
        ["0", "4"],
    ]
    assert "Unscored: parse 1" in lines
    assert any("leaving out one of 5 tasks at a time" in line for line in lines)
    assert any(line.startswith("Warning: fewer than 20 tasks") for line in lines)


Case = Callable[..., list[str]]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Writes verdicts (1, 0 or - a character), labels of one or more annotators, and trajectories
    of two agents and sites.
    """

    def write(
        said: str,
        *truths: str,
        other: str = "",
        source: str = "human",
        task: Callable[[int], str] = str,
    ) -> list[str]:
        def verdicts(name: str, said: str) -> bytes:
            info = EvaluatorInfo(name, "1")
            return b"".join(
                encode(
                    Verdict(id=f"r{i}", evaluator=info, unscored="parse", reason="no status")
                    if c == "-"
                    else Verdict(
                        id=f"r{i}",
                        evaluator=info,
                        success=c == "1",
                        score=float(c),
                        reason=f"why {i}",
                    )
                )
                for i, c in enumerate(said)
            )

        (tmp_path / "v.jsonl").write_bytes(verdicts("mine", said))
        (tmp_path / "other.jsonl").write_bytes(verdicts("theirs", other or said))
        words = {"1": True, "0": False, "?": None}
        labels = [
            LabelRecord(
                id=f"r{i}",
                success=words[c],
                source=source,
                annotator=f"P{k}",
                undecided="unsure" if c == "?" else None,
            )
            for k, truth in enumerate(truths)
            for i, c in enumerate(truth)
            if c != " "
        ]
        (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
        trajectories = [
            Trajectory(
                id=f"r{i}",
                task=Task(id=task(i), goal=f"goal {i}", site="shop" if i % 2 else "map"),
                agent="fox" if i < len(said) // 2 else "\x1b[31mowl",
                metadata={"truncated": i % 4 == 0},
            )
            for i in range(len(said))
        ]
        (tmp_path / "t.jsonl").write_bytes(
            b"".join(encode_trajectory(t, tmp_path) for t in trajectories)
        )
        return [
            str(tmp_path / "v.jsonl"),
            str(tmp_path / "l.jsonl"),
            "--trajectories",
            str(tmp_path / "t.jsonl"),
        ]

    return write


def agree(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["agree", *words]) == 0
    return capsys.readouterr().out


def as_json(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agree([*words, "--json"], capsys))
    return found


def test_by_needs_trajectories_with_the_key(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("10", "10")
    assert main(["agree", *words[:2], "--by", "site"]) == 2
    assert "by needs trajectories" in capsys.readouterr().err
    assert main(["agree", *words, "--by", "colour"]) == 2
    assert "keys: site, agent, platform, task, truncated" in capsys.readouterr().err


def test_python_compares_as_the_command_does(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case("1100-11010", "1010110101", "1110", other="0101010101")
    more = [
        "--by",
        "site,agent",
        "--disagreements",
        str(tmp_path / "d.jsonl"),
    ]
    page, found = agree([*words, *more], capsys), as_json([*words, *more], capsys)
    written = (tmp_path / "d.jsonl").read_bytes()
    config = prill.AgreeConfig(
        verdicts=[words[0]],
        labels=words[1],
        trajectories=tmp_path / "t.jsonl",
        by=["site", "agent"],
        disagreements=tmp_path / "d.jsonl",
    )
    result = prill.agree(config)
    assert capsys.readouterr() == ("", ""), "the library prints nothing"
    assert f"{result}\n" == page
    assert json.loads(encode(result.to_dict())) == found
    assert (tmp_path / "d.jsonl").read_bytes() == written
    assert result.agreement.kappa.value == next(
        f["value"] for f in found["figures"] if f["name"] == "kappa"
    )
    assert [row["value"] for row in result.table("site").to_rows()] == [
        part["value"] for part in found["slices"]["site"]
    ]
    assert result.table().to_rows()[0]["figure"] == "accuracy"
    with pytest.raises(UsageError, match="it has site, agent"):
        result.table("colour")
    shown = result._repr_html_()
    assert "Cohen" in shown and "\x1b" not in shown


def test_agents_ranked_by_judge_and_label(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("11101000", "11000100")
    lines = agree(words, capsys).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Success rate by agent"))
    assert lines[at + 1].split() == ["fox", "4", "0.750", "0.500"]
    assert lines[at + 3].endswith("Kendall's tau-b 1.000")


def test_ceiling_is_agreement_of_annotators(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("1010", "1100", "1001", "10")
    shown = agree(words, capsys)
    assert "on 4 trajectories with two or more labels: the upper limit" in shown
    assert "all equal, of 3 or more" in shown
    people = as_json(words, capsys)["annotators"]
    # r0 111, r1 100, r2 00, r3 01: pairs 3 of 3, 1 of 3, 1 of 1, 0 of 1.
    assert (people["raw"], people["exact"], people["three_or_more"]) == (5 / 8, 0.5, 2)


def test_truth_is_chosen_by_rule_or_name(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("1010", "1100", "1010", "1 1 ")
    # r0 all 1; r1 1 and 0; r2 0, 1 and 1; r3 both 0.
    truths = {"majority": (2, 0, 1), "unanimous": (1, 0, 2), "first": (1, 1, 0), "P1": (2, 0, 0)}
    for rule, (tp, fp, undecided) in truths.items():
        found = as_json([*words, "--truth", rule], capsys)
        assert (found["confusion"]["tp"], found["confusion"]["fp"], found["undecided"]) == (
            tp,
            fp,
            undecided,
        )
    shown = agree(words, capsys)
    assert "Truth: the majority of the annotators who decided; a tie is undecided" in shown
    assert "1 undecided labels (1 tie)" in shown
    assert main(["agree", *words, "--truth", "most"]) == 2
    assert "annotators: P0, P1, P2 (--truth)" in capsys.readouterr().err


def test_labels_without_verdict_are_told(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("10", "1011?")
    shown = agree(words[:2], capsys)
    assert (
        "Without a verdict: 2 labelled trajectories, counted as wrong in the last accuracy" in shown
    )
    assert "Not compared: 1 labels without verdict" in shown
    assert re.search(r"accuracy, unscored as wrong +0\.500 ", shown)
    # the trajectories are those two alone
    assert "Not used: 3 labels of other runs" in agree(words, capsys)


def test_scores_are_measured_or_undefined(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case("1010", "1100")
    assert "Brier score and calibration error: undefined, as every score is 0 or 1" in agree(
        words, capsys
    )
    path = tmp_path / "v.jsonl"
    path.write_text(path.read_text().replace('"score":1.0', '"score":0.8'))
    # Successes at 0.8 and 0, failures at 0.8 and 0: (0.04 + 1 + 0.64 + 0) / 4; (|0.8 - 0.5| * 2 +
    # |0 - 0.5| * 2) / 4
    assert re.search(r"Brier score +0\.420 ", agree(words, capsys))
    assert re.search(r"calibration error +0\.400 +-", agree(words, capsys))


def test_several_judges_have_a_row_each_and_are_compared(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case("1111-000", "11111?00", other="10001000")
    words.insert(1, str(tmp_path / "other.jsonl"))
    told = (tmp_path / "other.jsonl").read_text()
    told = told.replace('"prompt_tokens":0', '"prompt_tokens":8,"cached_tokens":6')
    (tmp_path / "other.jsonl").write_text(told)
    shown = agree(words, capsys).splitlines()
    cells = [line.split() for line in shown if re.match(r"\d\. (mine|theirs) 1 ", line)]
    rows = {" ".join(line[:3]): line[3:] for line in cells[:2]}
    # scored, unscored, success, labelled, accuracy
    assert rows["1. mine 1"][:5] == ["7", "1", "0.571", "6", "1.000"]
    assert rows["2. theirs 1"][:5] == ["8", "0", "0.250", "7", "0.571"]
    # accuracy of the constant answer, of the number of steps and of prior, which needs more runs
    assert rows["1. mine 1"][-3:] == ["0.667", "0.667", "-"]
    # calls, tokens, seconds and cost of a verdict; tokens of a correct one
    tokens = ["0"], ["8,", "6", "cached"]
    assert [line[3:] for line in cells[2:]] == [["0", *each, "0", "$0", "-"] for each in tokens]
    found = as_json(words, capsys)
    [pair] = found["pairs"]
    # r0 both; r1, r2, r3 only mine; r5, r6, r7 neither: 4 of 7 equal
    assert (pair["runs"], pair["same"]["value"]) == (7, pytest.approx(4 / 7))
    assert pair["kappa"]["value"] == pytest.approx((4 / 7 - 22 / 49) / (1 - 22 / 49))
    both = pair["labelled"]
    assert (both["both"], both["difference"], both["first_right"]) == (6, 0.5, 3)
    assert "p = 0.250" in next(line for line in shown if line.startswith("1, 2"))
    # the agents: fox has r0 to r3, owl the rest
    at = shown.index(next(line for line in shown if line.startswith("Success rate by agent")))
    assert shown[at + 1].split() == ["fox", "1.000", "1.000", "0.250"]
    assert shown[at + 3].split()[-2:] == ["1.000", "-1.000"]
    assert pair["tau"] == 1.0
    result = prill.agree(
        prill.AgreeConfig(verdicts=words[:2], labels=words[2], trajectories=words[4])
    )
    assert [row["judge"] for row in result.table().to_rows()] == ["mine 1", "theirs 1"]


def test_files_of_one_judge_are_joined_unless_they_share_a_run(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels = case("1100", "1010")[:2]
    whole = as_json([verdicts, labels], capsys)
    lines = Path(verdicts).read_bytes().splitlines(keepends=True)
    parts = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for part, data in zip(parts, (lines[:2], lines[2:]), strict=True):
        part.write_bytes(b"".join(data))
    assert as_json([*map(str, parts), labels], capsys) == whole
    again = as_json([verdicts, str(parts[0]), labels], capsys)
    assert [row["name"] for row in again["judges"]] == ["mine 1 (v.jsonl)", "mine 1 (a.jsonl)"]


@pytest.mark.parametrize("more", [["--by", "site"], ["--disagreements", "d.jsonl"]])
def test_details_are_of_one_judge(
    more: list[str], case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case("1100", "1010")
    assert main(["agree", str(tmp_path / "other.jsonl"), *words, *more]) == 2
    assert "only for the verdicts of one judge, not of 2" in capsys.readouterr().err


def test_disagreements_written_and_counted(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "d.jsonl"
    words = [*case("1100-", "10111", "0    "), "--disagreements", str(out)]
    assert "1 false positive, 2 false negative, 1 unscored" in agree(words, capsys)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["kind"], row["id"]) for row in rows] == [
        ("false positive", "r1"),
        ("false negative", "r2"),
        ("false negative", "r3"),
        ("unscored", "r4"),
    ]
    assert (rows[0]["goal"], rows[0]["reason"], rows[0]["annotators"][0]["annotator"]) == (
        "goal 1",
        "why 1",
        "P0",
    )
    assert as_json(words, capsys)["disagreements"] == {
        "false positive": 1,
        "false negative": 2,
        "unscored": 1,
    }


def test_disagreements_never_overwrite_input(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case("10", "10")
    before = Path(words[1]).read_bytes()
    assert main(["agree", *words, "--disagreements", words[1]]) == 2
    assert "this is also an input; choose another file (--disagreements)" in capsys.readouterr().err
    assert Path(words[1]).read_bytes() == before


def test_corrections_on_request_are_counted(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("0000", "1101", source="oracle", task=lambda i: f"webarena.{(24, 201, 225, 7)[i]}")
    assert as_json(words, capsys)["confusion"] == {"tp": 0, "fp": 0, "tn": 1, "fn": 3}
    words += ["--corrections", "webarena"]
    found = as_json(words, capsys)
    assert found["confusion"] == {"tp": 0, "fp": 0, "tn": 3, "fn": 1}
    assert (found["corrections"]["matched"], found["corrections"]["changed"]) == (
        ["r0", "r1", "r2"],
        ["r0", "r1"],
    )
    shown = agree(words, capsys)
    assert "3 trajectories belong to these tasks; 2 labels changed" in shown
    assert "GPT-4 agent" in shown
    assert "Without trajectories, the id of a run is taken as the id of its task" in agree(
        [*words[:2], *words[-2:]], capsys
    )
