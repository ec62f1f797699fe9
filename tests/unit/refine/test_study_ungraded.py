"""A study where nobody grades, as on phones: a judge gives its figures, labelled as a judge's, or
people label afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.episodes.run_folder import RunFolder
from prill.errors import UsageError
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.store import iter_trajectories
from prill.refine.filtered_bc.episodes import Table
from prill.refine.filtered_bc.results import read_study_results, write_results
from prill.refine.filtered_bc.study import FilteredBCConfig, make_judges
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from prill.ui.view.label_log import LabelLog
from tests.unit.refine.test_study import SELF_TRAINING, TABLE, Small, run


class Phone(Small):
    """As `Small`, without an oracle: whether it was done is what the agent says of it, in the
    end.
    """

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        assert not {"judge", "annotated"} & episodes.keys(), (
            "who grades is no option of the episodes"
        )
        level = (
            self.first_level if adapter is None else int((adapter / "adapter_model").read_text())
        )
        with RunFolder(out) as folder:
            for seed in episodes["seeds"]:
                id = f"{seed}-{level}"
                if id not in folder:
                    self._count(f"{out.name} {id}")
                    end = "stop" if seed % 100 < level else "fail"
                    step = Step(Observation(text=f"page {seed}"), Action("click", f"click {seed}"))
                    task = Task(id=f"e/t?seed={seed}", goal="g")
                    played = Trajectory(
                        id=id,
                        task=task,
                        steps=(step,),
                        answer=end,
                        metadata={"seed": seed, "attempt": 0, "ended_by": end},
                    )
                    folder.keep(played, None)


def evaluated(**more: Any) -> dict[str, Any]:
    return {**TABLE["evaluation"], **more}


# A judge of one's own: it believes what the agent says.
JUDGE = """
from prill.types import EvaluatorInfo, Verdict

class Believes:
    def __init__(self):
        self.info = EvaluatorInfo("believes", "1", model="m")

    def screenshots(self, trajectory):
        return ()

    async def __call__(self, trajectory):
        return Verdict(id=trajectory.id, success=trajectory.answer == "stop", evaluator=self.info)
"""


@pytest.fixture
def judge(tmp_path: Path) -> str:
    path = tmp_path / "judge.py"
    path.write_text(JUDGE)
    return f"{path}:Believes"


def test_judge_gives_the_figures(tmp_path: Path, judge: str) -> None:
    run(Phone(), tmp_path / "s", evaluation=evaluated(judge=judge), arms=[SELF_TRAINING])
    results = write_results(tmp_path / "s")
    assert {(score.arm, score.successes, score.n) for score in results.scores} == {
        ("base", 2, 6),
        ("self-training", 6, 6),
    }
    assert results.judged_by == "believes (m)"
    text = (tmp_path / "s/results.md").read_text()
    assert (
        "A judge's figures, not the truth" in text
        and "believes (m)" in text
        and "| judged successful |" in text
    )
    assert json.loads((tmp_path / "s/results.json").read_text())["judged_by"] == "believes (m)"
    assert "by the judge believes" in (tmp_path / "s/success-by-round.svg").read_text()


def label(folder: Path, success: Sequence[str]) -> None:
    """As `prill annotate` does."""
    with LabelLog(folder / LABELS, "ann") as log:
        for item in iter_trajectories(folder / TRAJECTORIES):
            assert isinstance(item, Trajectory)
            log.put(
                LabelRecord(id=item.id, success=item.id in success, source="human", annotator="ann")
            )


def test_people_label_afterwards(tmp_path: Path) -> None:
    run(Phone(), tmp_path / "s", evaluation=evaluated(annotated=True), arms=[SELF_TRAINING])
    assert [(score.n, score.unlabelled) for score in read_study_results(tmp_path / "s").scores] == [
        (0, 6),
        (0, 6),
    ]
    label(tmp_path / "s/base/evaluation", ["100-2"])
    label(tmp_path / "s/seed-0/self-training/round-1/evaluation", ["100-6", "101-6", "104-6"])
    scores = read_study_results(tmp_path / "s").scores
    assert [(score.successes, score.n) for score in scores] == [(1, 6), (3, 6)]


@pytest.mark.parametrize(
    ("evaluation", "problem"),
    [
        ({"judge": "nosy"}, "evaluation.judge: unknown judge 'nosy' \\(did you mean 'noisy'"),
        ({"judge": 3}, "evaluation.judge: expected a name or a table"),
        ({"judge": "oracle"}, "evaluation.judge.*labels"),
        ({"annotated": "yes"}, "evaluation.annotated: expected true or false"),
        ({"annotated": True, "judge": "self-report"}, "evaluation.annotated: give either a judge"),
    ],
)
def test_wrong_graders_are_refused_at_once(evaluation: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make_judges(FilteredBCConfig.read({**TABLE, "evaluation": evaluated(**evaluation)}))
