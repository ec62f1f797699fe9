"""The Python API takes values: records, paths and logs in the place of files, and a run's fields in
the place of its configuration.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import prill
from prill.config.registry import list_options
from prill.config.values import Config
from prill.evaluators.registry import JUDGES, JudgeName, JudgeWrappers, judge_options
from prill.io.lines import held, held_records
from prill.models.registry import model_options
from tests.unit.commands.test_recordings import RUN, lines

SAMPLES = Path("datasets/samples/miniwob")
RUNS, LABELS = SAMPLES / "trajectories.jsonl", SAMPLES / "labels.jsonl"
Deed = Callable[[Any, Any, Any, Path], Any]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def judged() -> list[prill.Verdict]:
    return prill.score(Path(__file__).parents[2] / RUNS, "self-report")


DEEDS: dict[str, Deed] = {
    "agree": lambda v, y, t, out: str(prill.agree(v, y, trajectories=t, by="site")),
    "agreement": lambda v, y, t, out: str(prill.agreement(v, y, trajectories=t)),
    "rate": lambda v, y, t, out: str(prill.rate(v, y, trajectories=t)),
    "calibrate": lambda v, y, t, out: str(prill.calibrate(v, y, out / "c.json", trajectories=t)),
    "show": lambda v, y, t, out: (
        prill.show("miniwob-f864a76398", v, trajectories=t, labels=y).trajectory
    ),
    "fit": lambda v, y, t, out: str(prill.fit(t, y, output=out / "s.json")),
    "report": lambda v, y, t, out: (
        prill.report(t, verdicts=v, labels=y, output=out / "r.html").summary.trajectories
    ),
    "filter": lambda v, y, t, out: str(prill.filter(t, v, out / "rows")).splitlines()[0],
    "score": lambda v, y, t, out: [one.key for one in prill.score(t, "self-report")],
    "write_table": lambda v, y, t, out: prill.write_table(verdicts=v, labels=y).table.rows,
}


@pytest.mark.parametrize("name", DEEDS)
def test_values_and_paths_give_the_same(
    name: str, judged: list[prill.Verdict], tmp_path: Path
) -> None:
    (tmp_path / "values").mkdir()
    runs, labels = prill.read_trajectories(RUNS), list(prill.read_labels(LABELS))
    prill.write_verdicts(judged, tmp_path / "v.jsonl")
    of_files = DEEDS[name](tmp_path / "v.jsonl", LABELS, RUNS, tmp_path)
    assert of_files == DEEDS[name](judged, labels, runs, tmp_path / "values")
    assert held_records("<verdicts>") is held_records("<trajectories>") is None, "kept too long"


def test_two_lists_are_compared(judged: list[prill.Verdict], tmp_path: Path) -> None:
    prill.write_verdicts(judged[::2], tmp_path / "a.jsonl")
    prill.write_verdicts(iter(judged[1::2]), tmp_path / "b.jsonl.gz")
    runs = prill.read_trajectories(SAMPLES)
    values = prill.compare(judged[::2], judged[1::2], trajectories=[runs[::2], iter(runs[1::2])])
    files = prill.compare(a=tmp_path / "a.jsonl", b=tmp_path / "b.jsonl.gz", trajectories=RUNS)
    assert values.table().rows == files.table().rows
    assert (values.a.file, values.b.file) == ("<a>", "<b>")


@pytest.mark.parametrize("make", [prill.JudgeConfig, lambda name, **rest: {"name": name, **rest}])
def test_values_and_paths_give_the_same_in_a_part(make: Any, tmp_path: Path) -> None:
    labels, runs = list(prill.read_labels(LABELS)), prill.read_trajectories(RUNS)[:9]
    values, files = (make("oracle", labels=one) for one in (labels, str(LABELS)))
    keys = [one.key for one in prill.score(runs, files)]
    assert [one.key for one in prill.score(runs, values)] == keys
    written = prill.score(runs, values, output=tmp_path / "v.jsonl")
    assert {one.key for one in prill.read_verdicts(written.output)} == set(keys)
    assert held_records("<labels>") is None, "kept too long"


def test_a_configuration_and_its_fields_are_the_same_run(
    judged: list[prill.Verdict], tmp_path: Path
) -> None:
    prill.write_verdicts(judged, tmp_path / "v.jsonl")
    config = prill.RateConfig(verdicts=tmp_path / "v.jsonl", labels=LABELS, width=0.1)
    assert config == prill.RateConfig.read(config.table()), "one path where a list is wanted"
    by_loop = asyncio.run(prill.rate_async(judged, LABELS, width=0.1))
    assert str(by_loop) == str(prill.rate(config))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: prill.rate(v, LABELS, trajectorys=RUNS), "did you mean 'trajectories'"),
        (lambda v: prill.score(RUNS, "self-report", modle="m"), "did you mean 'model'"),
        (lambda v: prill.rate(v), "labels is missing"),
        (lambda v: prill.rate(v, LABELS, RUNS), "expected at most 2: verdicts, labels"),
        (lambda v: prill.rate(v, LABELS, labels=LABELS), "labels: given twice"),
        (lambda v: prill.rate(LABELS, v), "contains labels, not verdicts"),
        (lambda v: prill.rate([*v[:2], "x"], LABELS), r"<verdicts>\[2\]: expected a Verdict"),
        (
            lambda v: prill.compare(prill.CompareConfig(a="a", b="b"), labels=LABELS),
            "labels: a CompareConfig is given",
        ),
        (lambda v: prill.write_verdicts([1], "v.jsonl"), "expected verdicts, got a int"),
    ],
)
def test_what_is_wrong_is_named(
    call: Callable[[Any], object], message: str, judged: list[prill.Verdict]
) -> None:
    with pytest.raises(prill.PrillError, match=message):
        call(judged)


def test_every_run_shows_its_fields() -> None:
    for name in ("rate", "fit", "compare", "report", "filter", "caption", "rollout"):
        shown = inspect.signature(getattr(prill, name)).parameters
        config = getattr(prill, f"{name.capitalize()}Config")
        assert issubclass(config, Config)
        assert set(list_options(config)) <= set(shown)
        assert inspect.iscoroutinefunction(getattr(prill, f"{name}_async"))


def test_logs_are_read_as_lists_and_streams(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = lines(tmp_path / "calls.log", {"id": "one", "messages": RUN}, {"id": "b", "messages": 5})
    with pytest.raises(prill.InputError, match=r"calls\.log:2"):
        prill.read_trajectories(log)
    with caplog.at_level(logging.WARNING):
        (run,) = prill.read_trajectories([log], "skip")
    picture = run.observations[-1].screenshot
    assert picture and Path(picture).exists(), "deleted before the process ends"
    assert next(prill.iter_trajectories(log, "yield")).id == run.id
    assert [v.success for v in prill.score([run], "always-success")] == [True]
    without = lines(tmp_path / "no.log", {"id": "x", "messages": RUN[1:]})
    assert prill.read_trajectories(without, goal="Buy it")[0].task.goal == "Buy it"


def test_every_run_reads_the_logs_that_score_reads(tmp_path: Path) -> None:
    rows = [{"id": f"run{i}", "messages": RUN} for i in range(4)]
    log = lines(tmp_path / "calls.log", *rows)
    verdicts = prill.score(log, "always-success")
    labels = [
        prill.LabelRecord(id=v.id, success=i % 2 == 0, source="me") for i, v in enumerate(verdicts)
    ]
    assert prill.agree(verdicts, labels, trajectories=log).agreement.judged == 4
    assert prill.agreement(verdicts, labels, trajectories=log).clustered_by == "task"
    assert prill.rate(verdicts, labels, trajectories=log).joined.runs == 4
    shown = prill.show("run0", verdicts, trajectories=log).trajectory
    assert shown is not None and shown.task.goal == "Buy green tea"
    twice = [json.loads(json.dumps(row)) | {"id": f"b{row['id']}"} for row in rows]
    other = prill.score(lines(tmp_path / "b.log", *twice), "always-fail")
    both = prill.compare(verdicts, other, trajectories=[log, tmp_path / "b.log"])
    assert both.main.difference.value == -1


def test_a_trajectory_shows_itself_in_a_notebook() -> None:
    (run, *_) = prill.read_trajectories(RUNS)
    shown = run._repr_html_()
    assert run.task.goal in shown and shown.count("<li>") == len(run.steps)
    assert 'src="data:image/' in shown
    hostile = prill.Trajectory(
        id="x",
        task=prill.Task(goal="<script>" + "g" * 9000),
        steps=tuple(
            prill.Step(
                observation=prill.Observation(screenshot="/nowhere.png"),
                action=prill.Action(kind="click", text="<img onerror=1>" + "a" * 9000),
            )
            for _ in range(500)
        ),
    )
    text = hostile._repr_html_()
    assert "<script>" not in text and "<img" not in text and len(text) < 30_000
    assert "450 more steps" in text and "missing" in text


def test_type_checkers_know_the_judges() -> None:
    assert set(get_args(JudgeName)) == set(JUDGES.names())
    shown = inspect.signature(prill.judge).parameters
    options = {name for judge in JUDGES.names() for name in judge_options(judge)}
    options |= {*list_options(JudgeWrappers), *model_options("gpt-4o")}
    assert set(shown) - {"name", "options"} <= options
    made = prill.judge("always-fail", evidence_only=True)
    assert made.info == prill.judge({"name": "always-fail", "evidence_only": True}).info


def test_two_values_of_one_name_do_not_meet() -> None:
    with held("a", [1]) as first, held("a", [2]) as second:
        assert first != second and held_records(first) == [1] and held_records(second) == [2]
