"""The report, `prill agree` and Python tell the same figures of the same verdicts."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest

from prill.cli import main
from prill.evaluators.agreement.agreement import agreement
from prill.evaluators.labels import make_task
from prill.io.store import encode, iter_trajectories, read_labels, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict
from prill.ui.report.entries import read_judges
from prill.ui.report.page import write_report

INFO = EvaluatorInfo("judge", "1", "m")
_LABELS: Sequence[bool | None] = (True, True, False, False, False, None)


def drawn(seed: int, folder: Path) -> tuple[Path, Path, Path]:
    """Files of runs, verdicts and labels: some verdicts lack a score, or are unscored or missing,
    and so are some labels.
    """
    dice = random.Random(seed)
    runs, verdicts, labels = [], [], []
    score = [
        lambda: dice.random(),
        lambda: dice.choice([0.0, 1.0]),
        lambda: None,
        lambda: dice.choice([None, 0.3]),
    ][seed % 4]
    for i in range(dice.randint(6, 60)):
        id, task = f"r{i}", f"t{dice.randint(0, 12)}"
        runs.append(Trajectory(id=id, task=Task(id=task, goal=f"goal of {task}")))
        if dice.random() < 0.9:
            labels.append(LabelRecord(id=id, success=dice.choice(_LABELS)))
        for _ in range(dice.choice([0, 1, 1, 1, 1, 2])):
            said = dice.choice([True, False, False, None])
            unscored = "timeout" if said is None else None
            verdicts.append(
                Verdict(
                    id=id,
                    success=said,
                    score=None if said is None else score(),
                    unscored=unscored,
                    evaluator=INFO,
                )
            )
    # Whatever was drawn, there is something to compare.
    labels += [LabelRecord(id="sure", success=True), LabelRecord(id="stray", success=False)]
    runs.append(Trajectory(id="sure", task=Task(id="t0", goal="goal of t0")))
    verdicts.append(Verdict(id="sure", success=True, score=score(), evaluator=INFO))
    verdicts.append(Verdict(id="gone", success=True, score=score(), evaluator=INFO))
    dice.shuffle(verdicts)
    paths = folder / "t.jsonl", folder / "v.jsonl", folder / "l.jsonl"
    for path, records in zip(paths, (runs, verdicts, labels), strict=True):
        path.write_bytes(b"".join(map(encode, records)))
    return paths


def shown(page: str) -> dict[str, str]:
    """What the table of the page tells, by the figure's name."""
    (table,) = re.findall(r'<table class="figures">.*?</table>', page, re.DOTALL)
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th><td>(.*?)</td>', table)
    return {
        re.sub(r" \(lower is better\)", "", name): unescape(re.sub(r"<[^>]+>", "", cell)).strip()
        for name, cell in rows
    }


@pytest.mark.parametrize("seed", range(8))
def test_all_tell_the_same_figures(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, verdicts, labels = drawn(seed, tmp_path)
    page = tmp_path / "r.html"
    write_report(page, iter_trajectories(runs), read_judges([verdicts]), read_labels(labels))
    in_page = shown(page.read_text(encoding="utf-8"))
    assert main(["agree", str(verdicts), str(labels), "--trajectories", str(runs), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["agree", str(verdicts), str(labels), "--trajectories", str(runs)]) == 0
    lines = capsys.readouterr().out
    tasks = {
        run.id: make_task(run) for run in iter_trajectories(runs) if isinstance(run, Trajectory)
    }
    in_python = agreement(read_verdicts(verdicts), read_labels(labels), tasks=tasks)
    figures = [*told["figures"], *told["scores"]]
    assert [figure["name"] for figure in figures] == [
        figure.name for figure in (*in_python.figures, *in_python.scores)
    ]
    for figure in figures:
        row = next(line for line in lines.splitlines() if line.startswith(figure["name"] + "  "))
        cell = in_page.pop(figure["name"])
        if figure["undefined"]:
            assert cell == "undefined" and row.endswith("undefined")
        else:
            assert cell.split()[0] == f"{figure['value']:.3f}" and f"{figure['value']:.3f}" in row
            assert ("[" in cell) == (figure["low"] is not None)
            if figure["low"] is not None:
                assert f"[{figure['low']:.3f}, {figure['high']:.3f}]" in cell
                assert f"{figure['low']:.3f} to {figure['high']:.3f}" in row
    rules = ("a constant answer", "number of steps", "prior")
    for name, rule in zip(rules, told["baselines"], strict=True):
        figures = rule["missing"] or f"{rule['accuracy']:.3f} {rule['name']}; the judge: "
        assert in_page.pop(f"{name}, without a judge").startswith(figures)
        assert rule["missing"] in lines and rule["name"] in lines
    assert told["baselines"][0]["accuracy"] == told["majority"]
    assert not in_page


def test_pictures_show_the_scores_of_the_figures(tmp_path: Path) -> None:
    # some verdicts lack a score: they count as 1 or 0, by their success
    runs, verdicts, labels = drawn(3, tmp_path)
    write_report(
        tmp_path / "r.html", iter_trajectories(runs), read_judges([verdicts]), read_labels(labels)
    )
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    judged = agreement(read_verdicts(verdicts), read_labels(labels)).judged
    assert sum(map(int, re.findall(r"(\d+) scores around", text))) == judged
