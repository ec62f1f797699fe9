"""`prill failures` on files, as a user runs it: causes with codes, groups of similar reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import encode
from prill.types import (
    Action,
    Criterion,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)

JUDGE = EvaluatorInfo("modular", "1", "m")
CART = "The cart stayed empty because the kettle was never added to the cart"
DATE = "The calendar shows a wrong date, the meeting was booked on another day"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Ten runs: of c0 to c4 the judge says that the cart, of d0 to d2 that the date is wrong; `ok`
    is a success, `un` unscored, and the label says that it failed at a captcha.
    """
    missed = Findings(criteria=(Criterion(text="add the kettle", met="not_met", step=1),))
    verdicts = [
        *(
            Verdict(
                id=f"c{i}",
                success=False,
                reason=f"{CART}, run {i}",
                evaluator=JUDGE,
                findings=missed,
            )
            for i in range(5)
        ),
        *(
            Verdict(id=f"d{i}", success=False, reason=f"{DATE}, run {i}", evaluator=JUDGE)
            for i in range(3)
        ),
        Verdict(id="ok", success=True, reason="fine", evaluator=JUDGE),
        Verdict(id="un", unscored="timeout", evaluator=JUDGE),
    ]
    steps = tuple(Step(Observation(text=f"page {i}"), Action("click", f"b{i}")) for i in range(2))
    runs = [
        Trajectory(
            id=one.id,
            task=Task(goal="Buy a kettle"),
            steps=steps,
            final=Observation(text="captcha" if one.id == "un" else "the end"),
        )
        for one in verdicts
    ]
    paths = [tmp_path / name for name in ("t.jsonl", "v.jsonl", "l.jsonl")]
    prill.write_trajectories(paths[0], runs)
    paths[1].write_bytes(b"".join(map(encode, verdicts)))
    paths[2].write_bytes(encode(LabelRecord(id="un", success=False)))
    return list(map(str, paths))


def test_causes_and_groups_are_printed(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["failures", files[0], "--verdicts", files[1], "--labels", files[2]]) == 0
    page = capsys.readouterr().out
    assert "Failed: 9 of 10 runs" in page
    assert "     5  missed_requirement  a requested thing was not done (by the judge" in page
    assert "c0 (step 2), c1 (step 2)" in page
    assert "     1  captcha" in page and "un (final state)" in page
    groups = page.partition("Similar reasons")[2].splitlines()[1:]
    assert [line.split()[0] for line in groups] == ["5", "3"]
    assert CART in groups[0] and DATE in groups[1]


def test_groups_as_json_have_their_most_central_run_and_stability(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["failures", files[0], "--verdicts", files[1], "--clusters", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [group["count"] for group in told["reasons"]] == [5, 3]
    assert all(group["stability"] > 0.6 for group in told["reasons"])
    assert all(group["medoid"] in group["ids"] for group in told["reasons"])
    assert told["causes"] == [
        {"code": "missed_requirement", "count": 5},
        {"code": "other", "count": 3},
    ]
    first = told["failed"][0]
    assert (first["id"], first["cause"], first["step"]) == ("c0", "missed_requirement", 2)


def test_unscored_runs_did_not_fail(files: list[str]) -> None:
    result = prill.failures(prill.FailuresConfig(trajectories=[files[0]], verdicts=[files[1]]))
    assert "un" not in [run.id for run in result.failed]
    assert result.table().to_rows()[0]["by"] == "modular"


def test_labels_alone_give_causes_without_reasons(files: list[str]) -> None:
    result = prill.failures(prill.FailuresConfig(trajectories=[files[0]], labels=[files[2]]))
    assert [(run.id, run.cause and run.cause.code) for run in result.failed] == [("un", "captcha")]
    assert result.reasons == ()


def test_what_failed_must_be_told(files: list[str]) -> None:
    with pytest.raises(UsageError, match="give verdicts or labels"):
        prill.FailuresConfig(trajectories=[files[0]])
