"""`prill fit` on files, and the example, as a user runs them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# Looked for and not imported, as every worker collects every file.
if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed: pip install '.[student]'", allow_module_level=True)

import prill as library

Prill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """30 tasks, a success and a failure each; labels of people, and of an oracle that always says
    failure.
    """
    runs, labels = [], []
    for i in range(30):
        for success in (True, False):
            steps = [
                {
                    "observation": {"caption": "a shop"},
                    "action": {"kind": "click", "target": f"{k if success else 0}"},
                }
                for k in range(3 if success else 9)
            ]
            final = {"caption": "the order was placed" if success else "the cart is empty"}
            task = {"id": f"k{i}", "goal": "Order tea", "platform": "web", "site": f"site{i % 2}"}
            runs.append({"id": f"{i}{success}", "task": task, "steps": steps, "final": final})
            labels.append({"id": f"{i}{success}", "success": success, "source": "human"})
            labels.append({"id": f"{i}{success}", "success": False, "source": "oracle"})
    paths = tmp_path / "t.jsonl", tmp_path / "l.jsonl"
    for path, rows in zip(paths, (runs, labels), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return paths


def test_fit_gives_a_card_and_a_usable_judge(files: tuple[Path, Path], prill: Prill) -> None:
    done = prill("fit", *files, "-o", "m.json", "--source", "human")
    assert done.returncode == 0, done.stderr
    assert "Fitted on 60 runs of 30 tasks, 30 successes; labels: human" in done.stdout
    assert "site0, fitted on the other sites" in done.stdout
    assert "It was fitted on these sites" in done.stdout
    scored = prill("score", files[0], "-o", "v.jsonl", "--judge", "student", "--model", "m.json")
    assert scored.returncode == 0, scored.stderr
    compared = prill("agree", "v.jsonl", files[1], "--source", "human", "--json")
    assert json.loads(compared.stdout)["confusion"] == {"tp": 30, "fp": 0, "tn": 30, "fn": 0}


def test_abstaining_is_a_choice_where_agents_do_not_deceive(
    files: tuple[Path, Path], prill: Prill
) -> None:
    done = prill("fit", *files, "-o", "m.json", "--source", "human", "--no-abstain")
    assert done.returncode == 0, done.stderr
    assert "It judges every run whose last state has a text, of up to 100,000 " in done.stdout
    scored = prill("score", files[0], "-o", "v.jsonl", "--judge", "student", "--model", "m.json")
    assert scored.returncode == 0, scored.stderr
    for deceived in ("--harden", "--evidence-only"):
        done = prill("fit", *files, "-o", "n.json", "--no-abstain", deceived)
        assert done.returncode == 2 and "may deceive it" in done.stderr


def test_python_fits_as_the_command_does(
    files: tuple[Path, Path], prill: Prill, capsys: pytest.CaptureFixture[str]
) -> None:
    with files[0].open("a") as file:
        file.write('{"id": "x"}\n')
    words = (
        "--source",
        "human",
        "--harden",
        "--families",
        "stop-early,answer-short",
        "--out-of-fold",
        "held.jsonl",
    )
    done = prill("fit", *files, "-o", "m.json", *words)
    capsys.readouterr()
    families = ["stop-early", "answer-short"]
    config = library.FitConfig(
        trajectories=[files[0]],
        labels=files[1],
        output="p.json",
        source="human",
        harden=True,
        families=families,
    )
    result = library.fit(config.copy_with(out_of_fold="p.jsonl"))
    assert capsys.readouterr() == ("", ""), "the library prints nothing"
    assert f"{result}\n" == done.stdout
    assert "Judge: student, hardened" in done.stdout
    assert "fitted without that family" in done.stdout and "stop-early" in done.stdout
    assert json.loads(Path("m.json").read_text())["hardened"] is True
    assert Path("p.json").read_bytes() == Path("m.json").read_bytes()
    assert Path("p.jsonl").read_bytes() == Path("held.jsonl").read_bytes()
    assert [problem.partition(": ")[0] for problem in result.broken] == [f"{files[0]}:61"]
    rows = {row["runs"]: row for row in result.table().to_rows()}
    assert rows["all (5 folds by task)"]["kappa"] == result.model.card.all_runs.kappa
    assert {
        "all, were it not hardened",
        "complete runs only",
        "site0, fitted on the other sites",
    } <= rows.keys()


def test_json_card_has_hashes_and_fits_equal(files: tuple[Path, Path], prill: Prill) -> None:
    shown = [
        prill("fit", *files, "-o", f"{i}.json", "--source", "human", "--kind", "prior", "--json")
        for i in range(2)
    ]
    card = json.loads(shown[0].stdout)
    assert [len(digest) for digest in card["data"]] == [64, 64]
    assert (card["runs"], card["seed"], card["folds"]) == (60, 0, 5)
    assert Path("0.json").read_bytes() == Path("1.json").read_bytes()


def test_out_of_fold_scores_are_calibrated(files: tuple[Path, Path], prill: Prill) -> None:
    words = ("fit", *files, "-o", "m.json", "--source", "human", "--out-of-fold", "held.jsonl")
    assert prill(*words).returncode == 0
    held = [json.loads(line) for line in Path("held.jsonl").read_text().splitlines()]
    assert [row["id"] for row in held] == [
        json.loads(line)["id"] for line in files[0].read_text().splitlines()
    ]
    assert (
        prill("calibrate", "held.jsonl", files[1], "-o", "c.json", "--source", "human").returncode
        == 0
    )
    judge = ("--judge", "student", "--model", "m.json", "--judge.calibration", "c.json")
    done = prill("score", files[0], "-o", "v.jsonl", *judge)
    assert done.returncode == 0, done.stderr
    scored = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [row["record"] for row in held] == [row["record"] for row in scored]
    assert {row["evaluator"]["model"] for row in held} == {
        row["evaluator"]["model"] for row in scored
    }


def test_broken_line_is_named_rest_is_fitted(files: tuple[Path, Path], prill: Prill) -> None:
    with files[0].open("a") as file:
        file.write('{"id": "x"}\n')
    done = prill("fit", *files, "-o", "m.json", "--source", "human")
    assert done.returncode == 3
    assert "t.jsonl:61" in done.stderr
    assert "1 without label or steps left out" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "human, oracle"),
        (["--source", "oracle"], "0 successes and 60 failures"),
        (["--source", "nobody"], "no label has source"),
        (["--source", "human", "--harden", "--families", "luck"], "unknown attack family 'luck'"),
        (["--source", "human", "-o", "/dev/null/m.json"], "/dev/null/m.json: cannot be written"),
    ],
)
def test_impossible_fit_is_an_error(
    words: list[str], message: str, files: tuple[Path, Path], prill: Prill
) -> None:
    done = prill("fit", *files, "-o", "m.json", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not Path("m.json").exists()


def test_figures_of_fitted_runs_say_so_everywhere(files: tuple[Path, Path], prill: Prill) -> None:
    prill("fit", *files, "-o", "m.json", "--source", "human", "--out-of-fold", "held.jsonl")
    words = ("-o", "v.jsonl", "--judge", "student", "--model", "m.json")
    caution = "student was fitted on 60 of these 60 runs: its figures on them are too good"
    assert caution in prill("score", files[0], *words).stderr
    Path("m.json").unlink()  # the verdict file alone tells
    labels = ("--source", "human")
    compared = (files[1], *labels)
    assert f"Warning: {caution}" in prill("agree", "v.jsonl", *compared).stdout
    assert json.loads(prill("agree", "v.jsonl", *compared, "--json").stdout)["fitted"]["run"] == 60
    both = prill("agree", "held.jsonl", "v.jsonl", *compared).stdout
    assert "(v.jsonl) was fitted on 60 of these 60" in both and both.count("Warning: ") == 1
    page = ("--labels", *compared, "-o", "r.html")
    shown = prill("report", files[0], "--verdicts", "v.jsonl", *page, "--json")
    assert json.loads(shown.stdout)["fitted"] == {
        "student": {"run": 60, "task": 0, "other": 0, "unknown": 0}
    }
    assert caution in shown.stderr
    text = Path("r.html").read_text(encoding="utf-8")
    assert (
        "60 of which it was fitted on, so the figure does not hold for other runs" in text
        and caution in text
    )
    assert "better than the best rule" not in text
    assert "fitted: on this very run" in prill("show", "0True", "--verdicts", "v.jsonl").stdout
    calibrated = prill("calibrate", "v.jsonl", *compared, "-o", "c.json")
    assert f"Warning: {caution}" in calibrated.stdout, calibrated.stderr
    rows = prill(
        "filter", files[0], "--verdicts", "v.jsonl", "-o", "rows", "--labels", *compared, "--json"
    )
    assert json.loads(rows.stdout)["fitted"]["run"] == 60 and "too good" in rows.stderr
    assert " run |\n" in prill("table", "v.jsonl").stdout


JUDGE_FILE = """
name = "cascade"
[[judges]]
name = "student"
model = "m.json"
[[judges]]
name = "always-fail"
"""


@pytest.mark.parametrize("judge", [("student", "--model", "m.json"), ("judge.toml",)])
def test_sites_outside_the_fit_warn_once(
    judge: tuple[str, ...], files: tuple[Path, Path], prill: Prill
) -> None:
    prill("fit", *files, "-o", "m.json", "--source", "human")
    Path("judge.toml").write_text(JUDGE_FILE)
    Path("u.jsonl").write_text(files[0].read_text().replace('"site1"', '"zoo\\u001b"'))
    done = prill("score", "u.jsonl", "-o", "v.jsonl", "--judge", *judge)
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("30 runs are from sites that this student was not fitted on (zoo? 30)")
        == 1
    )
    assert (
        "not fitted on" not in prill("score", files[0], "-o", "w.jsonl", "--judge", *judge).stderr
    )


@pytest.mark.parametrize("judge", [("student", "--model", "m.json"), ("judge.toml",)])
def test_evidence_only_refuses_claims_fit(
    judge: tuple[str, ...], files: tuple[Path, Path], prill: Prill
) -> None:
    prill("fit", *files, "-o", "m.json", "--source", "human")
    Path("judge.toml").write_text(JUDGE_FILE)
    words = ("score", files[0], "-o", "v.jsonl", "--judge", *judge, "--judge.evidence-only")
    done = prill(*words)
    assert (done.returncode, "fit one on evidence only (--judge.evidence-only)" in done.stderr) == (
        2,
        True,
    ), done.stderr
    prill("fit", *files, "-o", "m.json", "--source", "human", "--evidence-only")
    assert prill(*words).returncode == 0


def test_learning_curve_is_text_and_a_picture(files: tuple[Path, Path], prill: Prill) -> None:
    words = ("--source", "human", "--kind", "prior", "--learning-curve", "curve.svg")
    done = prill("fit", *files, "-o", "m.json", *words)
    assert done.returncode == 0, done.stderr
    assert "with fewer labels" in done.stdout and "The last" in done.stdout
    picture = Path("curve.svg").read_text(encoding="utf-8")
    assert "%<" not in picture, "kappa is no percentage"
    assert picture.startswith("<svg") and "kappa: " in picture and "labels), splits from" in picture
    config = library.FitConfig(
        trajectories=[files[0]], labels=files[1], output="p.json", source="human", kind="prior"
    )
    result = library.fit(config.copy_with(learning_curve="p.svg"))
    labels = [point.labels for point in result.curve]
    assert labels == sorted(labels) and labels[-1] == 48, "four of five folds of 60 runs"
    bands = [point.auc for point in result.curve if point.auc is not None]
    assert bands and all(band.low <= band.mean <= band.high for band in bands)
