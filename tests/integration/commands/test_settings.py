"""What is wrong with settings is one error at once: nothing was played, judged or written when it
is said.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.commands.command import Prill, write_trajectories
from tests.support.commands.endpoint import Endpoint
from tests.support.paths import SUPPORT
from tests.support.refine.launching import needs_training

STUDY: dict[str, Any] = {
    "rounds": 1,
    "policy": {"name": "doubles.py:Agent", "mood": "calm", "temper": 0.5},
    "episodes": {
        "environment": "doubles.py:Pages",
        "goal": "Go there",
        "max_steps": 3,
        "workers": 1,
    },
    "attempts": [
        {"seeds": "0-1", "episode_timeout": 60.0},
        {"seeds": [2, 3], "start": 1},
    ],
    "evaluation": {"seeds": "10-11"},
    "filter": {"drop_idle": True, "threshold": 0.5},
    "training": {"preset": "small-text", "steps": 2, "batch": 2, "learning_rate": 1e-3},
    "arms": [
        {"name": "all"},
        {
            "name": "noisy",
            "judge": {"name": "noisy", "false_positives": 0.1, "seed": 1},
            "filter": {"per_task": 3},
        },
        {"name": "own", "judge": {"name": "doubles.py:Judge", "patience": 2.0}},
    ],
}
RETRIES: dict[str, Any] = {
    "environment": {
        "name": "doubles.py:Pages",
        "goal": "Go there",
        "start": 1,
        "wait": 0.5,
        "title": "a",
    },
    **{"seeds": "0-1", "max_steps": 3, "episode_timeout": 60.0, "retry_broken": True},
    "policy": {"name": "doubles.py:Learner", "mood": "calm", "temper": 0.5},
    "judge": {"name": "noisy", "false_positives": 0.1},
    "second": "doubles.py:Judge",
    "retries": {"attempts": 3, "keep_best": True, "threshold": 0.5, "status": "bit"},
    "lessons": {"lesson_tokens": 100},
}
STUDY_WORDS = ("filtered-bc", "s.json", "-o", "out")
RETRY_WORDS = ("reflexion", "s.json", "-o", "out")
PLAY = ("rollout", "doubles.py:Pages", "--goal", "g", "-o", "out", "--policy", "doubles.py:Agent")
AGAIN = (
    "reflexion",
    "doubles.py:Pages",
    "--goal",
    "g",
    "-o",
    "out",
    "--policy",
    "doubles.py:Learner",
    "--judge",
)
SCORE = ("score", "t.jsonl", "-o", "out.jsonl", "--judge")
TEAM = ("redteam", "t.jsonl", "l.jsonl", "-o", "out", "--judge")
CAPTION = ("caption", "p.jsonl", "-o", "out.jsonl", "--model", "m")
TRAIN = ("train", "policy", "r.jsonl", "-o", "out", "--preset", "small-text")
BENCH = (
    "papers",
    "bench",
    "miniwob",
    "-o",
    "out",
    "--tasks",
    "click-test-2",
    "--policy",
    "scripted",
)

Settings = dict[str, Any]
# The change to a study, and the key that the error has to name.
OF_STUDIES: list[tuple[Settings, str]] = [
    ({"arms.1.judge": "noissy"}, "arms[1].judge: "),
    ({"arms.1.judge": "missing.toml"}, "arms[1].judge: missing.toml"),
    ({"arms.1.judge": "vlm"}, "arms[1].judge.model"),
    ({"arms.1.judge.false_positives": float("nan")}, "arms[1].judge.false_positives: "),
    ({"arms.1.judge.false_positive": 0.1}, "arms[1].judge.false_positive: "),
    ({"arms.1.judge.labels": "gone.jsonl"}, "arms[1].judge: gone.jsonl"),
    ({"arms.2.judge.name": "doubles.py:Juge"}, "arms[2].judge: doubles.py:Juge"),
    ({"arms.1.filter.per_tsk": 1}, "arms[1].filter.per_tsk: "),
    ({"arms.1.name": "a/b"}, "arms[1].name: "),
    ({"arms.1.name": "all"}, "arms: "),
    ({"arms": []}, "arms: "),
    ({"episodes.output": "elsewhere"}, "episodes.output: "),
    ({"episodes.max_steps": 0}, "episodes.max_steps: "),
    ({"episodes.environment": "doubles.py:Page"}, "doubles.py:Page: "),
    (
        {"episodes.environment": "doubles.py:Ungraded"},
        "evaluation: doubles.py:Ungraded has no oracle, so there would be no results",
    ),
    # its verdicts would all be unscored, after hours of play
    *(
        (
            {
                "episodes.environment": "doubles.py:Ungraded",
                "evaluation.annotated": True,
                "arms.1": {"name": judge, "judge": judge},
            },
            "; no oracle labels the attempts here",
        )
        for judge in ("oracle", "noisy")
    ),
    ({"policy.moood": 1}, "policy.moood: "),
    ({"attempts.0.seeds": "0-99999999999"}, "attempts[0]: seeds"),
    ({"attempts.0.attempts": 10**12}, "attempts[0]: "),
    ({"evaluation.policy": "scripted"}, "evaluation.policy: "),
    ({"policy.temper": "hot"}, "policy.temper: "),
    ({"training.preset": "smal-text"}, "training: unknown preset"),
    ({"training.trains": "ranker"}, "training.trains: "),
    pytest.param(
        {"training.batch": 3, "training.micro_batch": 2},
        "training.micro_batch: ",
        marks=needs_training,
    ),
    pytest.param(
        {"training.model": "cogagent"},
        "is CogAgent, whose code needs transformers below 4.42",
        marks=needs_training,
    ),
    ({"round": 1}, "round: "),
]
OF_RETRIES: list[tuple[Settings, str]] = [
    ({"judge.name": 5}, "judge.name: "),
    ({"second": "nope"}, "second: "),
    ({"judge.false_positives": "0.1"}, "judge.false_positives: "),
    ({"policy.name": "doubles.py:Agent"}, "does not accept lessons"),
    ({"policy.moood": "calm"}, "policy.moood: "),
    ({"environment.wait": float("nan")}, "environment.wait: "),
    ({"retries.threshold": 1.5}, "retries.threshold: "),
    ({"retries.false_negative_cost": 2.0, "retries.threshold": None}, "calibrat"),
    ({"lessons.lesson_token": 5}, "lessons.lesson_token: "),
    ({"retires": {}}, "retires: "),
]
OF_COMMANDS: list[tuple[tuple[object, ...], str]] = [
    ((*PLAY, "--seeds", "0-99999999999"), "seeds"),
    ((*PLAY, "--workers", 10**9), "workers"),
    ((*PLAY, "--moood", "1"), "--moood"),
    ((*PLAY, "--temper", "nan"), "temper"),
    (("rollout", "doubles.py:Pags", *PLAY[2:]), "'Pags'"),
    ((*AGAIN, "noisy", "--judge.false-positives", "a"), "--judge.false-positives"),
    ((*AGAIN, "oracle", "--baseline", "gone"), "--baseline"),
    (("reflexion", "doubles.py:Ungraded", *AGAIN[2:], "oracle"), "no oracle"),
    ((*SCORE, "votes.json"), "votes.json: judges[1].name"),
    ((*SCORE, "student", "--judge.model", "gone.json"), "gone.json"),
    ((*SCORE, "always-fail", "--engine", "nope"), "engine"),
    ((*TEAM, "self-report", "--attacks", "nope"), "attack"),
    (("redteam", "t.jsonl", "others.jsonl", *TEAM[3:], "self-report"), "others.jsonl"),
    ((*CAPTION, "--judge.captioner", "nope"), "captioner"),
    (("caption", "t.jsonl", "-o", "out", "--model", "m", "--for-training"), "screenshot"),
    ((*TRAIN, "--learning-rate", "nan"), "learning-rate"),
    ((*TRAIN[:-1], "bad.toml"), "bad.toml: stepps"),
    ((*BENCH, "--baselines", "nope"), "'nope'"),
]


@pytest.fixture
def place(prill: Prill, tmp_path: Path) -> Path:
    """A folder with what the settings name."""
    shutil.copy(SUPPORT / "commands/doubles.py", tmp_path)
    write_trajectories(tmp_path / "t.jsonl", 4)
    for name, ids, right in (("l", "t", False), ("others", "x", False), ("good", "t", True)):
        labels = [
            {"id": f"{ids}{i}", "success": right or i % 2 == 0, "source": "human"} for i in range(4)
        ]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(f"{json.dumps(label)}\n" for label in labels)
        )
    Image.new("RGB", (8, 8)).save(tmp_path / "p.png")
    pictured = {"id": "p", "task": {"goal": "g"}, "steps": [], "final": {"screenshot": "p.png"}}
    (tmp_path / "p.jsonl").write_text(f"{json.dumps(pictured)}\n")
    row = {
        "prompt": [{"role": "user", "content": "a"}],
        "completion": [{"role": "assistant", "content": "b"}],
    }
    (tmp_path / "r.jsonl").write_text(f"{json.dumps(row)}\n" * 4)
    (tmp_path / "bad.toml").write_text("stepps = 5\n")
    (tmp_path / "cogagent").mkdir()
    (tmp_path / "cogagent/config.json").write_text(
        '{"architectures": ["CogAgentForCausalLM"], "model_type": "cogagent"}'
    )
    votes = {"name": "vote", "judges": [{"name": "self-report"}, {"nam": "always-fail"}]}
    (tmp_path / "votes.json").write_text(json.dumps(votes))
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes | None]:
    """All that is in a folder; modules that Python compiled beside their source are not."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def changed(table: Settings, change: Settings) -> Settings:
    """A copy with other values at these paths; None takes a key out."""
    copy = json.loads(json.dumps(table))
    for path, value in change.items():
        *above, last = path.split(".")
        there: Any = copy
        for key in above:
            there = there[int(key)] if isinstance(there, list) else there.setdefault(key, {})
        if value is None:
            there.pop(last)
        else:
            there[int(last) if isinstance(there, list) else last] = value
    return copy  # type: ignore[no-any-return]


def refused(prill: Prill, folder: Path, words: tuple[object, ...]) -> str:
    """What the command said when it refused; the folder is what it was, and nothing was met."""
    before = contents(folder)
    done = prill(
        *words,
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        OPENAI_API_KEY="x",
    )
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert contents(folder) == before
    return done.stderr


@pytest.mark.parametrize(("change", "problem"), OF_STUDIES)
def test_wrong_studies_play_nothing(
    prill: Prill, place: Path, change: Settings, problem: str
) -> None:
    (place / "s.json").write_text(json.dumps(changed(STUDY, change)))
    assert problem in refused(prill, place, STUDY_WORDS)


@pytest.mark.parametrize(("change", "problem"), OF_RETRIES)
def test_wrong_retries_play_nothing(
    prill: Prill, place: Path, change: Settings, problem: str
) -> None:
    (place / "s.json").write_text(json.dumps(changed(RETRIES, change)))
    assert problem in refused(prill, place, RETRY_WORDS)


@pytest.mark.parametrize(("words", "problem"), OF_COMMANDS)
def test_wrong_words_begin_nothing(
    prill: Prill, place: Path, words: tuple[object, ...], problem: str
) -> None:
    if words[1] == "bench" and find_spec("miniwob") is None:
        pytest.skip("miniwob is not installed")
    assert problem in refused(prill, place, words)


@needs_training
def test_right_settings_are_planned_and_nothing_else(prill: Prill, place: Path) -> None:
    (place / "s.json").write_text(json.dumps(STUDY))
    (place / "r.json").write_text(json.dumps(RETRIES))
    with Endpoint(lambda text: "Status: success") as endpoint:
        base = endpoint.words[endpoint.words.index("--model.base-url") + 1]
        model = ("--model", "gpt-4o", "--model.base-url", base)
        plans: dict[tuple[object, ...], tuple[str, ...]] = {
            STUDY_WORDS: ("arms: 3", "at most 12 verdicts", "train 3 times", "0 calls"),
            ("reflexion", "r.json", "-o", "out"): ("play 2 episodes", "at most 6 attempts"),
            (*PLAY, "--seeds", "0-9", "--workers", "2"): ("play 10 episodes", "0 calls"),
            (*PLAY[:-1], "react", *model): ("calls and tokens: unknown",),
            (*SCORE, "modular", "--judge.captioner", "given", *model): (
                "4 trajectories",
                "about $0.0",
            ),
            (*TEAM, "self-report"): ("0 calls",),
            ("caption", "p.jsonl", "-o", "out.jsonl", *model): ("1 images", "1 calls, about"),
        }
        if find_spec("miniwob") is not None:
            plans[(*BENCH, "--seeds", "0-2")] = ("play 3 episodes", "at most 3 attempts")
        before = contents(place)
        for words, lines in plans.items():
            done = prill(*words, "--dry-run", "--json", OPENAI_API_KEY="x" * 20)
            assert {"calls", "prompt_tokens", "usd", "seconds"} <= json.loads(done.stdout).keys()
            done = prill(*words, "--dry-run", OPENAI_API_KEY="x" * 20)
            assert done.returncode == 0, (words, done.stderr)
            assert all(line in done.stdout for line in lines), done.stdout
            assert contents(place) == before, words
        assert not endpoint.turns
