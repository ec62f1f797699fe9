"""`prill agree` on files, as a user runs it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.evaluators import task_names
from prill.evaluators.meta import measure_agreement, pair
from prill.io.store import encode, encode_trajectory, read_trajectories
from prill.types import (
    EvaluatorInfo,
    Label,
    LabelRecord,
    StepLabel,
    StepVerdict,
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
    assert shown["always failure (no judge)"] == ["0.556"]
    assert [line.split()[-2:] for line in lines if line.startswith("judged ")] == [
        ["4", "1"],
        ["0", "4"],
    ]
    assert "Unscored: parse 1" in lines
    assert any("leaving out one of 5 tasks at a time" in line for line in lines)
    assert any(line.startswith("Warning: fewer than 20 tasks") for line in lines)


def test_json_holds_the_same_comparison(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agree", files[0], files[1], "--source", "oracle", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confusion"] == {"tp": 4, "fp": 1, "tn": 4, "fn": 0}
    assert (found["source"], found["unscored"], found["clustered_by"]) == (
        "oracle",
        {"parse": 1},
        "trajectory",
    )
    assert found["figures"][0]["value"] == pytest.approx(8 / 9)


def test_several_sources_need_a_choice(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agree", files[0], files[1]]) == 2
    assert "human, oracle" in capsys.readouterr().err


def test_malformed_label_is_named_by_line(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(files[1])
    path.write_text(
        '{"id": "0", "success": true}\n{"id": "1", "success": "yes"}\n', encoding="utf-8"
    )
    assert main(["agree", files[0], files[1]]) == 2
    assert f"{path}:2" in capsys.readouterr().err


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


def test_sections_only_where_they_apply(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    shown = agree(case("1100-1", "101011")[:2], capsys)
    for word in ("By ", "Annotators", "McNemar", "Kendall", "Disagreements", "Corrections"):
        assert word not in shown
    assert "AUC " in shown


def test_parts_sum_to_the_whole_in_the_table(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json([*case("1100-11010", "1010110101"), "--by", "site,agent,truncated"], capsys)
    assert list(found["slices"]) == ["site", "agent", "truncated"]
    for parts in found["slices"].values():
        for cell in ("tp", "fp", "tn", "fn"):
            assert sum(part[cell] for part in parts) == found["confusion"][cell]
        assert sum(part["unscored"] for part in parts) == 1
    assert {part["value"]: part["n"] for part in found["slices"]["truncated"]} == {
        "true": 3,
        "false": 7,
    }


def test_small_parts_marked_controls_escaped(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = agree([*case("10" * 40, "10" * 40), "--by", "site,agent"], capsys)
    (row,) = [line for line in shown.splitlines() if line.startswith("shop")]
    assert row.split() == ["shop", "40", "0", "0.000", "1.000", "-", "-", "-", "-", "!"]
    assert "fewer than 30 judged" in shown
    assert "\x1b" not in shown
    assert "?[31mowl" in shown


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
        "--against",
        str(tmp_path / "other.jsonl"),
        "--disagreements",
        str(tmp_path / "d.jsonl"),
    ]
    page, found = agree([*words, *more], capsys), as_json([*words, *more], capsys)
    written = (tmp_path / "d.jsonl").read_bytes()
    config = prill.AgreeConfig(
        verdicts=words[0],
        labels=words[1],
        trajectories=tmp_path / "t.jsonl",
        by=["site", "agent"],
        against=tmp_path / "other.jsonl",
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
    assert "McNemar" in shown and "\x1b" not in shown


def test_options_that_exclude_each_other_are_told() -> None:
    with pytest.raises(UsageError, match="corrections: only for whole trajectories, not for steps"):
        prill.AgreeConfig(verdicts="v", labels="l", steps=True, corrections="webarena")


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


def test_ceiling_covers_compared_runs_only(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("101", "101111", "111000")
    people = as_json(words, capsys)["annotators"]
    assert (people["trajectories"], people["raw"]) == (3, pytest.approx(2 / 3))


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
    assert "Not compared: 3 labels without verdict" in agree(words, capsys)


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


def test_undecided_labels_counted_by_kind(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = case("1010", "1?0?")
    assert "2 undecided labels (2 unsure)" in agree(words, capsys)
    assert as_json(words, capsys)["undecided_by"] == {"unsure": 2}


def test_two_judges_compared_on_shared_runs(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*case("1111-", "11111", other="10001"), "--against", str(tmp_path / "other.jsonl")]
    shown = agree(words, capsys)
    assert "on 4 trajectories that both judged" in shown
    assert "McNemar: p = 0.250 on 3 discordant trajectories (exact binomial)" in shown
    against = as_json(words, capsys)["against"]
    assert (
        against["difference"],
        against["first_right"],
        against["second_right"],
        against["only_second"],
    ) == (0.75, 3, 0, 1)


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


def test_unknown_corrections_are_an_error(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agree", *case("10", "10"), "--corrections", "nope"]) == 2
    assert "expected one of webarena" in capsys.readouterr().err


def test_python_and_the_command_draw_the_same_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four goals without ids, ten runs of each: four clusters at either door."""
    chance = random.Random(3)
    trajectories = [Trajectory(id=f"r{i}", task=Task(goal=f"goal {i % 4}")) for i in range(40)]
    verdicts = [
        Verdict(id=t.id, success=chance.random() < 0.5, evaluator=EvaluatorInfo("j", "1"))
        for t in trajectories
    ]
    labels = [LabelRecord(id=t.id, success=chance.random() < 0.5) for t in trajectories]
    for name, records in (("t", trajectories), ("v", verdicts), ("l", labels)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(encode, records)))
    paths = [str(tmp_path / f"{name}.jsonl") for name in "vlt"]
    assert main(["agree", *paths[:2], "--trajectories", paths[2], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    result = measure_agreement(pair(verdicts, labels), task_names(read_trajectories(paths[2])))
    assert said["clusters"] == result.clusters == 4
    assert said["figures"] == json.loads(encode(result.figures))


def test_steps_tell_how_often_the_first_wrong_one_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = EvaluatorInfo("steps", "2", "m")
    seen: dict[str, tuple[Label, ...]] = {"a": ("towards", "away"), "b": ("away", "away")}
    verdicts = [
        Verdict(
            id=id,
            success=False,
            steps=tuple(StepVerdict(i, label, 0.0) for i, label in enumerate(labels)),
            evaluator=judge,
        )
        for id, labels in seen.items()
    ]
    truth = (StepLabel(0, "towards"), StepLabel(1, "away"))
    labels = [LabelRecord(id=id, success=False, steps=truth) for id in seen]
    for name, records in (("v.jsonl", verdicts), ("l.jsonl", labels)):
        (tmp_path / name).write_bytes(b"".join(map(encode, records)))
    words = [str(tmp_path / "v.jsonl"), str(tmp_path / "l.jsonl"), "--steps"]
    assert main(["agree", *words]) == 0
    shown = capsys.readouterr().out
    assert "First wrong step: 2 runs have one, 0 have none" in shown
    assert re.search(r"found, of runs with one +0\.500 ", shown)
    assert main(["agree", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["first_errors"]
    assert (found["accuracy"], found["wrong"], found["f1"]) == (0.5, 2, None)
