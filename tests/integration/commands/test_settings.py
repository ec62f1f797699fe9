"""What is wrong with settings is one error at once: nothing was played, judged or written when it
is said.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
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
        {"seeds": [2, 3], "set": ["environment.start=1"]},
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
STUDY_WORDS = ("refine", "filtered-bc", "s.json", "-o", "out")
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
BATCH = (
    "batch",
    "write",
    "t.jsonl",
    "-o",
    "out",
    "--model",
    "m",
    "--captioner",
    "given",
    "--judge",
)
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
# The change to a study, and what the error has to name.
OF_STUDIES: list[tuple[Settings, str]] = [
    ({"arms.1.judge": "nope"}, "s.json: arms[1].judge: unknown judge 'nope'"),
    (
        {"arms.1.judge": "noissy"},
        "s.json: arms[1].judge: unknown judge 'noissy' (did you mean 'noisy'?)",
    ),
    (
        {"arms.1.judge": "missing.toml"},
        "s.json: arms[1].judge: missing.toml: No such file or directory",
    ),
    ({"arms.1.judge": "vlm"}, "s.json: arms[1].judge.model is missing"),
    ({"arms.1.judge": 5}, "s.json: arms[1].judge: expected a name or a table, got 5"),
    (
        {"arms.1.judge.false_positives": "a"},
        "s.json: arms[1].judge.false_positives: Expected `float`, got 'a'",
    ),
    (
        {"arms.1.judge.false_positives": float("nan")},
        "s.json: arms[1].judge.false_positives: expected a finite number",
    ),
    (
        {"arms.1.judge.false_positives": 2},
        "s.json: arms[1].judge.false_positives: Expected `float` <= 1.0",
    ),
    (
        {"arms.1.judge.false_positive": 0.1},
        "s.json: arms[1].judge.false_positive: judge 'noisy' has no such option (did",
    ),
    ({"arms.1.judge.labels": "gone.jsonl"}, "s.json: arms[1].judge: gone.jsonl"),
    ({"arms.1.judge.source": "human"}, "s.json: arms[1].judge"),
    ({"arms.1.judge.calibration": "gone.json"}, "s.json: arms[1].judge: gone.json"),
    (
        {"arms.2.judge.patience": "long"},
        "s.json: arms[2].judge.patience: Expected `float`, got 'long'",
    ),
    ({"arms.2.judge.name": "doubles.py:Juge"}, "s.json: arms[2].judge: doubles.py:Juge"),
    ({"arms.1.filter.per_task": 0}, "s.json: arms[1].filter.per_task: Expected `int` >= 1"),
    (
        {"arms.1.filter.per_tsk": 1},
        "s.json: arms[1].filter.per_tsk: the filter has no such option (did you mean 'per_task'?)",
    ),
    ({"arms.1.name": "."}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": ".."}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": "a\n"}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": "a/b"}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": ".hidden"}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": "a" * 300}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": ""}, "s.json: arms[1].name: Expected `str` matching regex"),
    ({"arms.1.name": "all"}, "s.json: arms: two arms have the name 'all'"),
    ({"arms.1.name": "base"}, "s.json: arms: an arm cannot have the name base"),
    ({"arms": []}, "s.json: arms: expected at least one"),
    ({"arms": 5}, "s.json: arms: expected a list of tables, got 5"),
    ({"episodes.output": "elsewhere"}, "s.json: episodes.output: unknown option"),
    ({"attempts.0.output": "elsewhere"}, "s.json: attempts[0].output: unknown option"),
    ({"episodes.json": True}, "s.json: episodes.json: unknown option"),
    ({"episodes.dry_run": True}, "s.json: episodes.dry_run: unknown option"),
    (
        {"episodes.max_step": 3},
        "s.json: episodes.max_step: unknown option (did you mean 'max_steps'?)",
    ),
    ({"episodes.max_steps": "3"}, "s.json: episodes.max_steps: Expected `int`, got '3'"),
    ({"episodes.max_steps": 0}, "s.json: episodes.max_steps: Expected `int` >= 1"),
    (
        {"episodes.environment": "doubles.py:Page"},
        "doubles.py:Page: doubles.py has no 'Page' (did you mean 'Pages'?)",
    ),
    ({"episodes.environment": 5}, "s.json: episodes.environment is missing; name the environment"),
    (
        {"episodes.environment": "doubles.py:Ungraded"},
        "s.json: evaluation: doubles.py:Ungraded has no oracle",
    ),
    ({"episodes.goal": 5}, "s.json: episodes.environment.goal: Expected `str"),
    (
        {"episodes.set": ["policy.moood=1"]},
        "s.json: episodes and attempts[0]: policy.moood: policy 'doubl",
    ),
    (
        {"episodes.model": "m"},
        "s.json: episodes.model: all episodes of a study use one model; name it under policy",
    ),
    (
        {"attempts.1.set": ["environment.start=a"]},
        "s.json: episodes and attempts[1]: environment.start: Expected `int`",
    ),
    (
        {"attempts.0.seeds": "0-99999999999"},
        "s.json: attempts[0]: seeds '0-99999999999': 0-99999999999 has too many",
    ),
    ({"attempts.0.seeds": "9" * 5000}, "a number may have at most 18 digits"),
    ({"attempts.0.seeds": "a"}, "s.json: attempts[0]: seeds 'a': expected numbers and ranges"),
    (
        {"attempts.0.attempts": 10**12},
        "s.json: episodes and attempts[0]: 1 tasks, 2 seeds and 1,000,000,000,000 attempts are",
    ),
    (
        {"attempts.0.episode_timeout": 0},
        "s.json: attempts[0].episode_timeout: Expected `float` > 0",
    ),
    (
        {"attempts.0.temperature": float("nan")},
        "s.json: attempts[0].temperature: expected a finite number, got nan",
    ),
    (
        {"evaluation.seeds": "10-9"},
        "s.json: evaluation: seeds '10-9': the range 10-9 is descending",
    ),
    (
        {"evaluation.policy": "scripted"},
        "s.json: evaluation.policy: only attempts may use another policy",
    ),
    ({"evaluation.workers": True}, "s.json: evaluation.workers: Expected `int`, got True"),
    (
        {"policy.name": "doubles.py:Agnt"},
        "s.json: policy: doubles.py:Agnt: doubles.py has no 'Agnt' (did you mean 'Agent'?)",
    ),
    (
        {"policy.mod": "calm"},
        "s.json: policy.mod: policy 'doubles.py:Agent' has no such option (did you mean 'mood'?)",
    ),
    ({"policy.temper": "hot"}, "s.json: policy.temper: Expected `float`, got 'hot'"),
    ({"policy.temper": float("inf")}, "s.json: policy.temper: expected a finite number, got inf"),
    (
        {"filter.treshold": 1},
        "s.json: filter.treshold: the filter has no such option (did you mean 'threshold'?)",
    ),
    ({"filter.threshold": "a"}, "s.json: filter.threshold: Expected `float`, got 'a'"),
    ({"arms.1.filter.calibration": "gone.json"}, "s.json: arms[1].filter.calibration: gone.json"),
    (
        {"training.preset": "smal-text"},
        "s.json: training: unknown preset 'smal-text' (did you mean 'small-text'?)",
    ),
    ({"training.preset": 5}, "s.json: training.preset: expected a string, got 5"),
    (
        {"training.step": 2},
        "s.json: training.step: training has no such option (did you mean 'steps'?)",
    ),
    ({"training.steps": 2.5}, "s.json: training.steps: Expected `int`, got 2.5"),
    (
        {"training.learning_rate": float("nan")},
        "s.json: training.learning_rate: expected a finite number",
    ),
    pytest.param(
        {"training.batch": 3, "training.micro_batch": 2},
        "s.json: training: micro_batch: 2 does not divide the 3 rows",
        marks=needs_training,
    ),
    (
        {"training.trains": "ranker"},
        "s.json: training.trains: a study trains a policy, not 'ranker'",
    ),
    pytest.param(
        {"training.targets": "("},
        "s.json: training: targets: '(' is not a regular expression",
        marks=needs_training,
    ),
    ({"rounds": 0}, "s.json: rounds: Expected `int` >= 1"),
    ({"rounds": 10**9}, "s.json: rounds: Expected `int` <= 1000"),
    ({"round": 1}, "s.json: round: unknown option (did you mean 'rounds'?)"),
]
OF_RETRIES: list[tuple[Settings, str]] = [
    ({"judge.name": "nope"}, "s.json: judge: unknown judge 'nope'"),
    ({"judge.name": 5}, "s.json: judge.name: expected the name of a judge, got 5"),
    ({"second": "nope"}, "s.json: second: unknown judge 'nope'"),
    ({"judge.false_positives": "a"}, "s.json: judge.false_positives: Expected `float`, got 'a'"),
    (
        {"judge.false_positives": "0.1"},
        "s.json: judge.false_positives: Expected `float`, got '0.1'",
    ),
    (
        {"judge.false_positives": float("nan")},
        "s.json: judge.false_positives: expected a finite number, got nan",
    ),
    (
        {"judge.false_postives": 0.1},
        "s.json: judge.false_postives: judge 'noisy' has no such option (did you mean 'false_pos",
    ),
    ({"seeds": "0-99999999999"}, "has too many numbers"),
    ({"environment.output": "elsewhere"}, "s.json: environment.output: "),
    ({"max_steps": "4"}, "s.json: max_steps: Expected `int`, got '4'"),
    (
        {"episode_timeout": float("inf")},
        "s.json: episode_timeout: expected a finite number, got inf",
    ),
    ({"policy.name": "doubles.py:Agent"}, "does not accept lessons"),
    ({"policy.name": 5}, "s.json: policy.name: expected the name of a policy, got 5"),
    ({"policy.temper": "hot"}, "s.json: policy.temper: Expected `float`, got 'hot'"),
    (
        {"policy.moood": "calm"},
        "s.json: policy.moood: policy 'doubles.py:Learner' has no such option (did you mean "
        "'mood'?)",
    ),
    ({"environment.start": "1"}, "s.json: environment.start: Expected `int`, got '1'"),
    (
        {"environment.wait": float("nan")},
        "s.json: environment.wait: expected a finite number, got nan",
    ),
    ({"retries.attempts": 10**12}, "s.json: retries.attempts: Expected `int` <= 1000"),
    ({"retries.threshold": 1.5}, "s.json: retries.threshold: Expected `float` <= 1.0"),
    ({"retries.false_negative_cost": 2.0, "retries.threshold": None}, "calibrat"),
    (
        {"lessons.lesson_token": 5},
        "s.json: lessons.lesson_token: unknown option (did you mean 'lesson_tokens'?)",
    ),
    ({"retires": {}}, "s.json: retires: unknown option (did you mean 'retries'?)"),
]
OF_COMMANDS: list[tuple[tuple[object, ...], str]] = [
    (
        (*PLAY, "--seeds", "0-99999999999"),
        "seeds '0-99999999999': 0-99999999999 has too many numbers",
    ),
    ((*PLAY, "--seeds", "1,9999999999999999999999"), "a number may have at most 18 digits"),
    ((*PLAY, "--attempts", 10**12), "1,000,000,000,000 episodes; a run may have at most 1,000,000"),
    (
        (*PLAY, "--workers", 10**9),
        "workers 1000000000: too many, because each needs an environment of its own; use "
        "at most 1000",
    ),
    ((*PLAY, "--moood", "1"), "--moood: unknown option (did you mean '--mood'?)"),
    ((*PLAY, "--temper", "nan"), "temper: expected a finite number, got 'nan'"),
    ((*PLAY, "--wait", "inf"), "wait: expected a finite number, got 'inf'"),
    ((*PLAY, "--start", "a"), "start: Expected `int`, got 'a'"),
    ((*PLAY, "--patience", "nan"), "--model.patience: Expected `float` > 0.0, got 'nan'"),
    ((*PLAY[:-1], "doubles.py:Agnt"), "doubles.py has no 'Agnt' (did you mean 'Agent'?)"),
    (("rollout", "doubles.py:Pags", *PLAY[2:]), "doubles.py has no 'Pags' (did you mean 'Pages'?)"),
    ((*PLAY, "--tasks", "gone.jsonl"), "give either tasks or goal (--tasks, --goal)"),
    ((*AGAIN, "nope"), "unknown judge 'nope'"),
    (
        (*AGAIN, "noisy", "--judge.false-positives", "a"),
        "--judge.false-positives: Expected `float`, got 'a'",
    ),
    ((*AGAIN, "noisy", "--judge.false-positives", "nan"), "--judge.false-positives: "),
    ((*AGAIN, "oracle", "--attempts", "0"), "attempts: Expected `int` >= 1"),
    ((*AGAIN, "oracle", "--threshold", "nan"), "threshold: "),
    (
        (*AGAIN, "oracle", "--baseline", "gone"),
        "gone: contains no recorded attempts to reuse (--baseline)",
    ),
    (
        ("reflexion", "doubles.py:Ungraded", *AGAIN[2:], "noisy"),
        "noisy: there is no oracle whose labels it could change",
    ),
    (
        ("reflexion", "doubles.py:Ungraded", *AGAIN[2:], "oracle"),
        "there is no oracle whose labels could decide",
    ),
    ((*SCORE, "nope"), "unknown judge 'nope'"),
    ((*SCORE, "votes.json"), "votes.json: judges[1].name"),
    ((*SCORE, "student", "--judge.model", "gone.json"), "gone.json"),
    ((*SCORE, "always-fail", "--engine", "nope"), "unknown engine 'nope'"),
    ((*SCORE, "modular", "--captioner", "given", "--model", "m", "--timeout", "nan"), "timeout: "),
    (
        (*SCORE, "modular", "--captioner", "given", "--model", "m", "--prices", "gone.toml"),
        "gone.toml",
    ),
    ((*TEAM, "nope"), "unknown judge 'nope'"),
    ((*TEAM, "self-report", "--attacks", "nope"), "unknown attack 'nope'"),
    (
        ("redteam", "t.jsonl", "others.jsonl", *TEAM[3:], "self-report"),
        "others.jsonl: no decided label of source",
    ),
    (
        ("redteam", "t.jsonl", "good.jsonl", *TEAM[3:], "self-report", "--max-shift", "5"),
        "there is no labelled failure",
    ),
    ((*CAPTION, "--captioner", "nope"), "unknown captioner 'nope'"),
    ((*CAPTION, "--max-tokens", "0"), "--captioner.max-tokens: Expected `int` >= 1"),
    ((*CAPTION, "--engine", "nope"), "unknown engine 'nope'"),
    ((*CAPTION, "--for-training", "--near", "1000"), "near: Expected `int` <= 256"),
    (
        ("caption", "t.jsonl", "-o", "out", "--model", "m", "--for-training"),
        "no state has a screenshot",
    ),
    ((*TRAIN, "--batch", "0"), "batch: Expected `int` >= 1"),
    (
        (*TRAIN, "--learning-rate", "nan"),
        "--preset.learning-rate: Expected `float` > 0.0, got 'nan'",
    ),
    *(
        pytest.param((*TRAIN, *words), error, marks=needs_training)
        for words, error in (
            (("--batch", "3", "--micro-batch", "2"), "micro_batch: 2 does not divide the 3 rows"),
            (("--targets", "("), "targets: '(' is not a regular expression"),
            (("--report-to", "nope"), "report_to: 'nope' is not installed here"),
        )
    ),
    (
        (*TRAIN[:-1], "bad.toml"),
        "bad.toml: stepps: training has no such option (did you mean 'steps'?)",
    ),
    ((*BATCH, "nope"), "unknown judge 'nope'"),
    ((*BATCH[:-3], "--judge", "self-report"), ""),
    (("batch", "submit", "gone"), "gone"),
    ((*BENCH, "--baselines", "nope"), "unknown figures 'nope'"),
    ((*BENCH, "--seeds", "0-99999999999"), "has too many numbers"),
    ((*BENCH[:-1], "doubles.py:Learner", "--trials", "100000"), "attempts: Expected `int` <= 1000"),
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


def refused(prill: Prill, folder: Path, words: tuple[object, ...], *, dry: bool) -> str:
    """What the command said when it refused; the folder is what it was, and nothing was met."""
    before = contents(folder)
    done = prill(
        *words,
        *(["--dry-run"] if dry else []),
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
    assert problem in refused(prill, place, STUDY_WORDS, dry=False)


@pytest.mark.parametrize(("change", "problem"), OF_RETRIES)
def test_wrong_retries_play_nothing(
    prill: Prill, place: Path, change: Settings, problem: str
) -> None:
    (place / "s.json").write_text(json.dumps(changed(RETRIES, change)))
    assert problem in refused(prill, place, RETRY_WORDS, dry=False)


@pytest.mark.parametrize(("words", "problem"), OF_COMMANDS)
def test_wrong_words_begin_nothing(
    prill: Prill, place: Path, words: tuple[object, ...], problem: str
) -> None:
    if words[1] == "bench" and find_spec("miniwob") is None:
        pytest.skip("miniwob is not installed")
    assert problem in refused(prill, place, words, dry=False)


def every_key(table: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The path and the value of each key of a table."""
    pairs = (
        table.items()
        if isinstance(table, dict)
        else enumerate(table)
        if isinstance(table, list)
        else ()
    )
    for key, value in pairs:
        here = f"{path}.{key}" if path else str(key)
        if isinstance(table, dict):
            yield here, value
        if not isinstance(value, list) or any(isinstance(one, dict) for one in value):
            yield from every_key(value, here)


@needs_training
def test_right_settings_are_planned_and_nothing_else(prill: Prill, place: Path) -> None:
    (place / "s.json").write_text(json.dumps(STUDY))
    (place / "r.json").write_text(json.dumps(RETRIES))
    prill(
        "batch",
        "write",
        "t.jsonl",
        "-o",
        "b",
        *BATCH[5:],
        "modular",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
    )
    with Endpoint(lambda text: "Status: success") as endpoint:
        base = endpoint.words[endpoint.words.index("--base-url") + 1]
        model = ("--model", "gpt-4o", "--base-url", base)
        plans: dict[tuple[object, ...], tuple[str, ...]] = {
            STUDY_WORDS: (
                "attempts[0]: play 2 episodes of 1 tasks, in doubles.py:Pages by Agent; at most 3 "
                "actions each",
                "arms: 3, judged by always-success, noisy, double; at most 12 verdicts",
                "train 3 times from embedded (lora), 2 steps of 2 rows",
                "in total: at most 4 attempts and 8 evaluation episodes",
                "0 calls: no model is called",
                "cost: $0.00",
                "time: unknown",
            ),
            ("reflexion", "r.json", "-o", "out"): (
                "play 2 episodes of 1 tasks, up to 3 times each, in doubles.py:Pages by Learner; "
                "at most 3 actions each",
                "judge at most 6 attempts by cascade",
                "generate at most 4 lessons",
                "time: unknown; at most 6 min, by the limit of an episode",
            ),
            (*PLAY, "--seeds", "0-9", "--workers", "2"): (
                "play 10 episodes",
                "at most 50 min",
                "0 calls: no model is called",
            ),
            (*PLAY[:-1], "react", *model): (
                "play 1 episodes",
                "calls and tokens: unknown (nothing is recorded there yet",
            ),
            (*SCORE, "modular", "--captioner", "given", *model): (
                "4 trajectories to judge, 0 done",
                "calls, about",
                "cost: about $0.0",
                "time: unknown",
            ),
            (*TEAM, "self-report"): (
                "trajectories to judge, 0 done",
                "attacks and the unattacked runs",
                "0 calls: no model is called",
            ),
            (*TEAM, "modular", "--captioner", "given", "--attacks", "pad-after-2000", *model): (
                "8 trajectories to judge, 0 done",
                "at most 8 calls, about",
            ),
            ("caption", "p.jsonl", "-o", "out.jsonl", *model): (
                "1 images to caption, 0 already in the file",
                "1 calls, about",
            ),
            ("caption", "p.jsonl", "-o", "out", "--for-training", *model): (
                "1 images to caption",
                "at most 1 calls, about",
            ),
            (
                "batch",
                "write",
                "t.jsonl",
                "-o",
                "out",
                "--judge",
                "modular",
                "--captioner",
                "given",
                *model,
            ): (
                "4 trajectories to judge",
                "half the price of calls",
                "4 calls, about",
            ),
            ("batch", "submit", "b"): (
                "submit requests-01-001.jsonl: 4 requests for m",
                "calls and tokens: unknown",
            ),
        }
        if find_spec("miniwob") is not None:
            plans[(*BENCH, "--seeds", "0-2")] = (
                "play 3 episodes of 1 tasks",
                "judge at most 3 attempts by the environment's",
            )
        before = contents(place)
        for words, lines in plans.items():
            done = prill(*words, "--dry-run", OPENAI_API_KEY="x" * 20)
            assert done.returncode == 0, (words, done.stderr)
            assert all(line in done.stdout for line in lines), done.stdout
            if words[0] != "batch":
                figures = json.loads(
                    prill(*words, "--dry-run", "--json", OPENAI_API_KEY="x" * 20).stdout
                )
                assert {"calls", "prompt_tokens", "usd", "seconds"} <= figures.keys()
            assert contents(place) == before, words
        assert not endpoint.turns


def test_recorded_attempts_are_what_estimates_go_by(prill: Prill, place: Path) -> None:
    assert prill(*PLAY, "--seeds", "0-1").returncode == 0
    lines = [
        json.loads(line) for line in (place / "out/trajectories.jsonl").read_text().splitlines()
    ]
    usage = {"calls": 2, "prompt_tokens": 100, "completion_tokens": 10, "images": 0, "usd": 0.5}
    lines = [{**line, "metadata": {**line["metadata"], "usage": usage}} for line in lines]
    (place / "out/trajectories.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    assert prill("accept", "out").returncode == 0
    words = (
        *PLAY[:-1],
        "react",
        "--model",
        "m",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--seeds",
        "0-9",
    )
    done = prill(*words, "--dry-run")
    assert (
        "20 calls, about 1,000 prompt and 100 completion tokens" in done.stdout
        and "cost: about $5.00" in done.stdout
    )
    assert (
        "play 2 episodes of 1 tasks, 2 done" in prill(*PLAY, "--seeds", "0-1", "--dry-run").stdout
    )
