"""Runs, verdicts and labels that do not belong together: no command's figures change silently."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.joining import record_digest
from prill.io.store import encode, read_verdicts
from prill.types import Action, EvaluatorInfo, Observation, Step, Task, Trajectory, Verdict
from prill.ui.view.library import Library
from tests.support.paths import ROOT

Line = dict[str, Any]
Lines = dict[str, list[Line]]
RUNS = 24  # of 12 tasks, by the agents old and new


JUDGE = EvaluatorInfo("mine", "1")


def verdict(trajectory: Trajectory) -> Verdict:
    score = len(trajectory.steps) / 4
    kept = {"key": "k", "record": record_digest(trajectory), "evaluator": JUDGE}
    return Verdict(id=trajectory.id, success=score > 0.5, score=score, **kept)


def run(number: int) -> Trajectory:
    steps = tuple(
        Step(Observation(text=f"page {number} {i}"), Action("click", target=f"[{i}] link 'Cart'"))
        for i in range(1 + number % 3)
    )
    agent = "old" if number % 2 else "new"
    task = Task(id=f"t{number // 2}", goal="Buy tea", platform="web")
    return Trajectory(id=f"r{number}", task=task, agent=agent, steps=steps, answer="done")


@pytest.fixture
def files() -> Lines:
    """Lines of trajectories, of verdicts on them, and of labels."""
    runs = [run(number) for number in range(RUNS)]
    return {
        "t": [json.loads(encode(run)) for run in runs],
        "v": [json.loads(encode(verdict(run))) for run in runs],
        "l": [
            {
                "id": run.id,
                "success": n % 5 < 2,
                "annotator": "a",
                "record": record_digest(run),
            }
            for n, run in enumerate(runs)
        ],
    }


def drop(found: list[Line]) -> list[Line]:
    return found[::2][:9] + found[1::2][:9]


def add(found: list[Line]) -> list[Line]:
    return [*found, *({**line, "id": f"more {line['id']}"} for line in found[:4])]


def exchange(found: list[Line]) -> list[Line]:
    ids = [line["id"] for line in found]
    return [{**line, "id": id} for line, id in zip(found, [*ids[1:], ids[0]], strict=True)]


def duplicate(found: list[Line]) -> list[Line]:
    again = [{**line, "success": not line["success"]} if "key" in line else line for line in found]
    return [*found, *again[:6]]


COMMANDS = {
    "agree": ["agree", "v.jsonl", "l.jsonl", "--trajectories", "t.jsonl"],
    "agree judges": ["agree", "v.jsonl", "v2.jsonl", "l.jsonl", "--trajectories", "t.jsonl"],
    "rate": ["rate", "v.jsonl", "l.jsonl", "--trajectories", "t.jsonl"],
    "compare": ["compare", "new.jsonl", "old.jsonl", "--trajectories", "t.jsonl"],
    "calibrate": ["calibrate", "v.jsonl", "l.jsonl", "-o", "c.json", "--trajectories", "t.jsonl"],
    "fit": ["fit", "t.jsonl", "l.jsonl", "-o", "p.json", "--kind", "prior"],
    "fit with": [
        *(
            "fit",
            "t.jsonl",
            "l.jsonl",
            "-o",
            "p.json",
            "--kind",
            "prior",
            "--with-verdicts",
            "v.jsonl",
        )
    ],
    "filter": ["filter", "t.jsonl", "--verdicts", "v.jsonl", "-o", "rows", "--labels", "l.jsonl"],
    "report": ["report", "t.jsonl", "-o", "r.html", "--verdicts", "v.jsonl", "--labels", "l.jsonl"],
    "table": ["table", "v.jsonl", "--labels", "l.jsonl"],
    "redteam": [
        *("redteam", "t.jsonl", "l.jsonl", "-o", "red", "--judge", "self-report"),
        *("--attacks", "claim-answer"),
    ],
    "show": [
        "show",
        "r6",
        "--verdicts",
        "v.jsonl",
        "--labels",
        "l.jsonl",
        "--trajectories",
        "t.jsonl",
    ],
}
WITHOUT_CONCLUSION = ("fit with", "filter", "report", "table")
# What commands say of each damage; where they cannot go on, the exit code is not 0.
TOLD = {
    (
        "t",
        drop,
    ): r"[36] verdicts of other runs|(6|3 by).* no trajectory in this page: 6|6 labels of",
    ("t", add): r"Runs without a verdict.*: [24] of|4 without label|>28<",
    ("t", exchange): "on other contents",
    ("t", duplicate): "duplicate id",
    (
        "v",
        drop,
    ): r"Runs without a verdict.*: [36] of|6 labels of other runs|without a verdict of mine: 6",
    ("v", add): r"[24] verdicts of other runs|no trajectory in this page: 4|more r0",
    ("v", exchange): "on other contents",
    ("v", duplicate): r"[36] verdicts that later ones replace|later ones replace: 6",
    (
        "l",
        drop,
    ): r"6 verdicts without label|18 of 24|18 labelled|6 without label|>18<|Labels: \w+$|of 6",
    ("l", add): r"4 labels of other runs|no trajectory in this page, and are not counted: 4",
    ("l", exchange): "on other contents",
    ("l", duplicate): r"6 labels are equal|equal to an earlier one: 6",
}
# A table has no figures: a row for each verdict, with its label.
UNTOLD = {
    *(("table", "l", drop), ("table", "l", exchange)),
    *(("table", "v", how) for how in (drop, exchange, duplicate)),
}


def write(folder: Path, files: Lines) -> None:
    written = {
        **files,
        "v2": [{**v, "evaluator": {**v["evaluator"], "name": "other"}} for v in files["v"]],
        **{
            agent: [v for v in files["v"] if int(v["id"].split("r")[-1]) % 2 == odd]
            for odd, agent in enumerate(("new", "old"))
        },
    }
    for name, found in written.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in found))


def told(
    words: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> tuple[str, str]:
    """Returns a command's figures, and all that it says."""
    monkeypatch.chdir(folder)
    caplog.clear()
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    page = folder / "r.html"
    figures = page.read_text() if words[0] == "report" and page.exists() else out
    return f"{code} {figures}", out + err + caplog.text + (figures if code == 0 else "")


@pytest.mark.parametrize(("name", "change"), TOLD, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("command", COMMANDS)
def test_no_figure_changes_silently(
    command: str,
    name: str,
    change: Callable[[list[Line]], list[Line]],
    files: Lines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    caplog: Any,
) -> None:
    if command in ("fit", "fit with", "calibrate"):
        pytest.importorskip("sklearn")
    before, after = tmp_path / "before", tmp_path / "after"
    results = []
    for folder, found in ((before, files), (after, {**files, name: change(files[name])})):
        folder.mkdir()
        write(folder, found)
        results.append(told(COMMANDS[command], folder, monkeypatch, capsys, caplog))
    (figures, _), (changed, said) = results
    assert figures.startswith("0"), figures
    silent = changed[0] == "0" and not re.search(TOLD[name, change], said, re.MULTILINE)
    assert changed == figures or not silent or (command, name, change) in UNTOLD, said


def test_runs_in_no_verdict_file_are_named_and_bounds_need_their_agent(
    files: Lines, tmp_path: Path
) -> None:
    def compare(**options: Any) -> prill.CompareResult:
        write(tmp_path, {**files, "v": files["v"][:12]})
        a, b, runs = (tmp_path / f"{name}.jsonl" for name in ("new", "old", "t"))
        return prill.compare(prill.CompareConfig(a=a, b=b, trajectories=[runs], **options))

    required = compare(require="B >= A - 0.9", unscored="bounds")
    assert (required.b.runs, required.b.unscored, required.unassigned) == (
        12,
        {"no verdict": 6},
        (),
    )
    assert required.decision == "inconclusive"
    for line in files["t"]:
        del line["agent"]
    unknown = compare(require="B >= A - 0.9")
    assert unknown.b.runs == 6
    assert "12 runs are in no verdict file, and may be of A or of B ('r12', 'r13'" in str(unknown)
    with pytest.raises(UsageError, match="12 runs are in no verdict file"):
        compare(unscored="bounds")


def test_verdicts_carry_the_digest_of_their_run_and_older_ones_stay_valid(tmp_path: Path) -> None:
    runs, output = [run(number) for number in range(4)], tmp_path / "v.jsonl"
    prill.write_trajectories(tmp_path / "t.jsonl", runs)
    config = prill.ScoreConfig(
        trajectories=[tmp_path / "t.jsonl"], output=output, judge="self-report"
    )
    prill.score(config)
    assert [v.record for v in read_verdicts(output)] == [record_digest(one) for one in runs]
    output.write_bytes(
        b"".join(encode(replace(v, record=UNSET)) for v in list(read_verdicts(output)))
    )
    assert b"record" not in output.read_bytes()
    assert prill.score(config).tally.skipped == 4


def test_a_digest_is_of_what_was_done() -> None:
    one = run(1)
    first, *more = one.steps
    seen = Observation(text=first.observation.text, screenshot="/x/1.png", caption="a page")
    same = replace(one, id="b", agent="c", metadata={"a": 1})
    same = replace(same, steps=(replace(first, observation=seen), *more))
    others = [
        replace(one, answer="failed"),
        replace(one, steps=one.steps[:1]),
        replace(one, task=replace(one.task, goal="Buy milk")),
        replace(one, steps=(replace(first, thought="hm"), *more)),
        replace(one, final=Observation(text="the end")),
    ]
    assert record_digest(same) == record_digest(one)
    assert len({record_digest(other) for other in [one, *others]}) == 6


def test_served_page_gives_no_figures_of_changed_runs(files: Lines, tmp_path: Path) -> None:
    write(tmp_path, {**files, "t": exchange(files["t"])})
    paths = ([str(tmp_path / f"{name}.jsonl")] for name in "tvl")
    library = Library(*paths)
    try:
        list(library.refresh())
        assert "on other contents" in str(library.summary().columns[0].comparison)
    finally:
        library.close()


def test_python_and_command_give_the_same_figures_as_in_the_readme(
    files: Lines, tmp_path: Path
) -> None:
    write(tmp_path, files)
    verdicts, labels, runs = (str(tmp_path / f"{name}.jsonl") for name in "vlt")
    config = prill.AgreeConfig(verdicts=[verdicts], labels=labels, trajectories=runs)
    assert prill.agreement(verdicts, labels, trajectories=runs) == prill.agree(config).agreement
    readme = (ROOT / "README.md").read_text()
    assert "prill.agreement(verdicts, labels, trajectories=runs)" in readme
    assert re.search(r"prill agree .* --trajectories \$samples/trajectories.jsonl", readme)


@pytest.mark.parametrize(
    "command", ["agree", "agree judges", "rate", "compare", "calibrate", "fit", "redteam"]
)
def test_trust_ends_in_one_sentence(
    command: str,
    files: Lines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command in ("fit", "calibrate"):
        pytest.importorskip("sklearn")
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    assert main(COMMANDS[command]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"(\d\. )?In short: .*(usable|chance).*\.$", last), last
