"""A study of filtered behavioural cloning, stage by stage: what plays and what trains are small
stand-ins here.

The whole chain, with a real model and a real browser, is in tests/e2e/commands/test_refine.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.episodes.run_folder import RunFolder
from prill.errors import UnparsableError, UsageError
from prill.protocols import Message
from prill.refine.filtered_bc.episodes import Table
from prill.refine.filtered_bc.results import (
    read_outcomes,
    read_study_results,
    results_text,
    write_results,
)
from prill.refine.filtered_bc.study import (
    Audience,
    FilteredBCConfig,
    round_folder,
    run_study,
)
from prill.refine.training.spec import TrainSpec
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples/filtered_bc/miniwob.toml"
FILTERED = {"name": "filtered", "judge": {"name": "oracle"}}
SELF_TRAINING = {"name": "self-training"}
TABLE: dict[str, Any] = {
    "output": "s",
    "policy": {"name": "p", "model": "m"},
    "episodes": {"environment": "e"},
    "attempts": {"seeds": [*range(4)]},
    "evaluation": {"seeds": [*range(100, 106)]},
    "arms": [SELF_TRAINING, FILTERED],
}


class Stopped(BaseException):
    """As sudden as a kill."""


@dataclass
class Small:
    """An environment and a policy in one: it solves the seeds below its level, and every row of
    training lifts that by one.
    """

    first_level: int = 2
    stop_after: int = -1  # episodes or trainings, until it is stopped
    done: list[str] = field(default_factory=list)

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        level = (
            self.first_level if adapter is None else int((adapter / "adapter_model").read_text())
        )
        with RunFolder(out) as folder:
            for seed in episodes["seeds"]:
                id = f"{seed}-{level}"
                if id not in folder:
                    self._count(f"{out.name} {id}")
                    step = Step(Observation(text=f"page {seed}"), Action("click", f"click {seed}"))
                    label = LabelRecord(id=id, success=seed % 100 < level, source="oracle")
                    task = Task(id=f"e/t?seed={seed}", goal="g")
                    folder.keep(
                        Trajectory(
                            id=id, task=task, steps=(step,), metadata={"seed": seed, "attempt": 0}
                        ),
                        label,
                    )

    def teacher(self) -> Small:
        return self

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        return [Message("user", ("What now?",))], trajectory.steps[index].action.text

    def learn(
        self, spec: TrainSpec, rows: Path, output: Path, **told: Callable[..., object]
    ) -> Path:
        if not output.exists():
            self._count(f"train {rows.parent.parent.name}")
            output.mkdir()
            count = len(rows.read_text().splitlines())
            (output / "adapter_model").write_text(str(self.first_level + count))
        return output

    def _count(self, what: str) -> None:
        if len(self.done) == self.stop_after:
            raise Stopped
        self.done.append(what)


def run(
    world: Small,
    out: Path,
    *,
    seeds: Sequence[int] = (0,),
    say: Callable[[str], object] = lambda words: None,
    **more: Any,
) -> None:
    config = FilteredBCConfig.read({**TABLE, **more, "output": out, "seeds": seeds})
    run_study(config, world, audience=Audience(say=say), learn=world.learn)


def test_only_what_was_judged_good_is_learnt(tmp_path: Path) -> None:
    run(Small(), tmp_path / "s")
    rows = {
        arm: (round_folder(tmp_path / "s", 0, arm, 1) / "rows.jsonl").read_text()
        for arm in ("filtered", "self-training")
    }
    answers = {
        arm: [json.loads(line)["completion"][0]["content"] for line in text.splitlines()]
        for arm, text in rows.items()
    }
    assert answers == {
        "filtered": ["click 0", "click 1"],
        "self-training": [f"click {seed}" for seed in range(4)],
    }


def test_figures_are_those_of_the_recordings(tmp_path: Path) -> None:
    run(Small(), tmp_path / "s")
    results = read_study_results(tmp_path / "s")
    # Untrained: seeds 0 and 1 of six. Two rows lift the level to 4, four rows to 6.
    counts = {(score.arm, score.successes, score.n) for score in results.scores}
    assert counts == {("base", 2, 6), ("filtered", 4, 6), ("self-training", 6, 6)}
    pairs = {(d.arm, d.against): (d.gained, d.lost, d.p) for d in results.differences}
    assert pairs["filtered", "base"] == (2, 0, 0.5) and pairs["filtered", "self-training"] == (
        0,
        2,
        0.5,
    )
    judge = next(m["judge"] for m in results.judges if m["arm"] == "self-training")
    assert (judge["precision"], judge["recall"]) == (0.5, 1.0)
    assert "| filtered | 0 | 1 | 4/6 | 66.7% |" in results_text(results)


@pytest.mark.parametrize("stop_after", [1, 5, 10, 11, 14, 17, 18])
def test_stopped_study_plays_nothing_twice(tmp_path: Path, stop_after: int) -> None:
    whole = Small()
    run(whole, tmp_path / "whole")
    stopped = Small(stop_after=stop_after)
    with pytest.raises(Stopped):
        run(stopped, tmp_path / "s")
    rest = Small()
    run(rest, tmp_path / "s")
    assert stopped.done + rest.done == whole.done
    assert read_study_results(tmp_path / "s") == read_study_results(tmp_path / "whole")


def test_second_round_is_taken_up_in_each_stage(tmp_path: Path) -> None:
    whole = Small()
    run(whole, tmp_path / "whole", rounds=2, arms=[FILTERED])
    # 4 attempts and 6 episodes untrained; the first round trains and plays 6 more; the second plays
    # 4, trains, and plays 6.
    assert [what for what in whole.done if what.startswith("train")] == [
        "train filtered"
    ] * 2 and len(whole.done) == 28
    for stop_after in (17, 19, 21, 22, 25):
        stopped, rest = Small(stop_after=stop_after), Small()
        with pytest.raises(Stopped):
            run(stopped, tmp_path / str(stop_after), rounds=2, arms=[FILTERED])
        run(rest, tmp_path / str(stop_after), rounds=2, arms=[FILTERED])
        assert stopped.done + rest.done == whole.done
        assert read_study_results(tmp_path / str(stop_after)) == read_study_results(
            tmp_path / "whole"
        )


def test_later_rounds_play_what_was_trained(tmp_path: Path) -> None:
    run(Small(), tmp_path / "s", rounds=2, arms=[FILTERED])
    second = round_folder(tmp_path / "s", 0, "filtered", 2)
    assert sum(bool(success) for success in read_outcomes(second / "attempts").values()) == 4
    # Two kept steps of the first round and four of the second.
    assert len((second / "rows.jsonl").read_text().splitlines()) == 6
    manifest = json.loads((second / "manifest.json").read_bytes())
    assert (manifest["round"], manifest["rows"]["count"], manifest["evaluation"]["successes"]) == (
        2,
        6,
        6,
    )
    results = write_results(tmp_path / "s")
    assert [(score.round, score.successes) for score in results.scores] == [(0, 2), (1, 4), (2, 6)]
    picture = (tmp_path / "s" / "success-by-round.svg").read_text()
    assert all(f"{successes} of 6" in picture for successes in (2, 4, 6))


def test_several_kinds_of_attempts_are_played(tmp_path: Path) -> None:
    world = Small()
    run(world, tmp_path / "s", arms=[SELF_TRAINING], attempts=[{"seeds": [0, 1]}, {"seeds": [2]}])
    assert world.done[:3] == ["attempts 0-2", "attempts 1-2", "attempts 2-2"]
    assert (
        len(
            (round_folder(tmp_path / "s", 0, "self-training", 1) / "rows.jsonl")
            .read_text()
            .splitlines()
        )
        == 3
    )


def test_seeds_share_attempts_and_base(tmp_path: Path) -> None:
    world = Small()
    run(world, tmp_path / "s", seeds=(0, 1), arms=[FILTERED])
    assert len([what for what in world.done if what.startswith("attempts")]) == 4
    results = read_study_results(tmp_path / "s")
    both = next(d for d in results.differences if d.seed is None)
    assert (both.pairs, both.gained, both.lost) == (6, 2, 0)  # episodes, not episodes times seeds


# A process that stops in the middle of its first training, and stays there until it is killed.
STUCK = """
import sys
from pathlib import Path
from tests.unit.refine.test_study import FILTERED, Small, run

class Stuck(Small):
    def learn(self, *given, **told):
        print("training", *self.done, sep="\\n", flush=True)
        sys.stdin.read()

run(Stuck(), Path(sys.argv[1]), arms=[FILTERED])
"""


def test_killed_process_is_taken_over(tmp_path: Path) -> None:
    whole, other, waits = Small(), Small(), threading.Event()
    run(whole, tmp_path / "whole", arms=[FILTERED])

    def say(words: str) -> None:
        if "waiting" in words:
            waits.set()

    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STUCK, str(tmp_path / "s")]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as first:
        try:
            assert first.stdout is not None and first.stdout.readline() == "training\n"
            more = {"say": say, "arms": [FILTERED]}
            second = threading.Thread(
                target=run, args=(other, tmp_path / "s"), kwargs=more, daemon=True
            )
            second.start()
            assert waits.wait(60)
        finally:
            first.kill()
        done = first.stdout.read().splitlines()
    second.join(60)
    assert done + other.done == whole.done
    assert read_study_results(tmp_path / "s") == read_study_results(tmp_path / "whole")


LATE = """
from pathlib import Path
from prill.types import EvaluatorInfo, Verdict

class Late:
    info = EvaluatorInfo("late", "1")

    def screenshots(self, trajectory):
        return ()

    async def __call__(self, trajectory):
        if not Path(__file__).with_name("paid").exists():
            return Verdict(id=trajectory.id, success=None, unscored="budget", reason="spent", evaluator=self.info)
        return Verdict(id=trajectory.id, success=trajectory.id[0] in "01", evaluator=self.info)
"""  # noqa: E501


def test_arm_that_could_not_be_judged_goes_on(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    arms = [{"name": "filtered", "judge": f"{tmp_path / 'late.py'}:Late"}]
    run(Small(), tmp_path / "s", arms=arms)
    assert "unscored: budget 4" in results_text(read_study_results(tmp_path / "s"))
    (tmp_path / "paid").touch()
    run(Small(), tmp_path / "s", arms=arms)
    results = read_study_results(tmp_path / "s")
    assert "ended in round" not in results_text(results)
    assert [(score.arm, score.successes) for score in results.scores] == [
        ("base", 2),
        ("filtered", 4),
    ]


def test_arm_with_nothing_kept_ends_alone(tmp_path: Path) -> None:
    run(Small(first_level=0), tmp_path / "s")
    results = read_study_results(tmp_path / "s")
    assert {score.arm for score in results.scores} == {"base", "self-training"}
    assert "filtered, seed 0, ended in round 1: no step is left of 4" in results_text(results)


def test_arm_without_words_ends_alone(tmp_path: Path) -> None:
    class Wordless(Small):
        def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
            if trajectory.id.startswith(("0-", "1-")):  # those that succeed
                raise UnparsableError("no such action")
            return super().demonstrate(trajectory, index)

    run(Wordless(), tmp_path / "s", arms=[FILTERED, SELF_TRAINING])
    results = read_study_results(tmp_path / "s")
    assert {(score.arm, score.successes) for score in results.scores} == {
        ("base", 2),
        ("self-training", 4),
    }
    assert (
        "ended in round 1: none of the 2 steps kept gives a row: no words for it"
        in results_text(results)
    )


def test_episodes_without_label_are_counted_apart(tmp_path: Path) -> None:
    run(Small(), tmp_path / "s")
    file = tmp_path / "s" / "base" / "evaluation" / "labels.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:-1], lines[-1].replace("false", "null")]))
    results = read_study_results(tmp_path / "s")
    assert (results.scores[0].successes, results.scores[0].n, results.scores[0].unlabelled) == (
        2,
        5,
        1,
    )
    assert next(d for d in results.differences if d.against == "base").pairs == 5


def test_further_arm_leaves_others_as_they_are(tmp_path: Path) -> None:
    world = Small()
    run(world, tmp_path / "s")
    before = list(world.done)
    run(
        world,
        tmp_path / "s",
        arms=[SELF_TRAINING, {"name": "strict", "judge": {"name": "always-fail"}}, FILTERED],
    )
    assert world.done == before, "nothing was let through, so nothing was trained or played"
    assert [
        arm["name"] for arm in json.loads((tmp_path / "s" / "study.json").read_bytes())["arms"]
    ][1] == "strict"


def test_other_study_in_the_folder_is_refused(tmp_path: Path) -> None:
    run(Small(), tmp_path / "s")
    with pytest.raises(UsageError, match="contains a study with other rounds"):
        run(Small(), tmp_path / "s", rounds=2)
    with pytest.raises(UsageError, match="contains a study with other arms"):
        run(
            Small(),
            tmp_path / "s",
            arms=[{"name": "self-training", "judge": {"name": "oracle"}}, FILTERED],
        )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="contains something that is not a study"):
        run(Small(), tmp_path / "other")


WRONG = [
    ({"arms": [FILTERED, FILTERED]}, "two arms have the name 'filtered'"),
    ({"arms": []}, "arms: "),
    ({"arms": [{"name": "base"}]}, "an arm cannot have the name base"),
    ({"arms": [{"name": "a", "juge": "oracle"}]}, r"arms\[0\].juge: .*did you mean 'judge'"),
    (
        {"filter": {"treshold": 1}},
        "treshold: the filter has no such option .did you mean 'threshold'",
    ),
    ({"training": {"step": 3}}, "step: training has no such option .did you mean 'steps'"),
    ({"training": {"preset": "tiny"}}, "unknown preset 'tiny'"),
    ({"rounds": 0}, "rounds: "),
    (
        {"attempts": [{"policy": object()}]},
        "attempts: a study is stored in its folder, so give names and tables",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_settings_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FilteredBCConfig.read({**TABLE, **change})


ROUND = "seed-0/filtered/round-1"
# A file of a study, what is changed in it, and what is said.
DAMAGED: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (
        f"{ROUND}/manifest.json",
        lambda data: data[: len(data) // 2],
        "manifest.json: not the manifest of a round .*; delete it",
    ),
    (
        f"{ROUND}/manifest.json",
        lambda data: data.replace(b'"precision": 1.0', b'"precision": []'),
        r"at `\$.judge.precision`",
    ),
    (
        f"{ROUND}/manifest.json",
        lambda data: data.replace(b'"arm": "filtered"', b'"arm": "x"'),
        "manifest.json: belongs to seed-0, x, round-1",
    ),
    ("study.json", lambda data: data[:9], "study.json: not a study"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "s"
    run(Small(), out)
    write_results(out)
    return out


@pytest.mark.parametrize(("name", "change", "message"), DAMAGED)
def test_damaged_study_is_one_clear_error(
    name: str,
    change: Callable[[bytes], bytes],
    message: str,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shutil.copytree(finished, tmp_path / "s")
    (out / name).write_bytes(change((out / name).read_bytes()))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(["filtered-bc", str(EXAMPLE), "-o", str(out), "--tables-only"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        ("nope", r"arms\[1\].judge: unknown judge 'nope'"),
        (
            {"name": "noisy", "false_positives": "a"},
            r"arms\[1\].judge.false_positives: Expected `float`, got 'a'",
        ),
        ({"name": "noisy", "labels": "gone.jsonl"}, r"arms\[1\].judge: gone.jsonl"),
    ],
)
def test_a_judge_that_cannot_be_plays_nothing(tmp_path: Path, judge: Any, problem: str) -> None:
    world = Small()
    with pytest.raises(UsageError, match=problem):
        run(world, tmp_path / "s", arms=[SELF_TRAINING, {"name": "f", "judge": judge}])
    assert not world.done and not (tmp_path / "s").exists()
