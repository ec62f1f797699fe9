"""Files of longer work, edited at random: settings are read or refused, and what a run left is
taken up or left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from prill.batches import BatchFolder
from prill.batches.folder import MANIFEST, Answers, Manifest, RequestFile
from prill.captioner.files import Caption, FileCaptioner
from prill.episodes.run_folder import PARTIAL, RunFolder
from prill.io.kinds import LABELS
from prill.io.store import read_labels, read_trajectories
from prill.models.local.weights import check_adapter
from prill.papers.bench.papers import read_paper
from prill.papers.embedders import TfidfEmbedder
from prill.papers.mind2web.mindact.memory import Sentences
from prill.papers.mind2web.pages.ranking import _About, _open_log
from prill.papers.mind2web.pages.state import read_scores
from prill.papers.mind2web.training import GoldTurns
from prill.papers.synapse.memory import ABSTRACTIONS, EXEMPLARS, ExemplarMemory
from prill.refine.filtered_bc import Audience, Study, _record_study
from prill.refine.outcomes import FORMAT, read_lessons, read_results
from prill.refine.retries import Lesson
from prill.refine.rewards import make_reward
from prill.refine.rewards.watch.records import WatchRecord, read_watch
from prill.refine.training.samples import read_rows
from prill.refine.training.spec import training_spec
from prill.runs.filter import FilterConfig
from prill.runs.reflexion import ReflexionConfig
from prill.runs.serve import ServeConfig
from prill.types import EvaluatorInfo, Opinion, Trajectory
from tests.integration.fuzz.test_own_files import LABEL, RECORD, label, trajectory
from tests.support.fuzz.edits import as_json, attempt, edited_bytes, edited_json, edits, fuzzed
from tests.support.paths import ROOT
from tests.unit.papers.mind2web import test_format as test_mind2web

REFLEXION = {
    "environment": {"name": "miniwob", "tasks": "click-link"},
    "max_steps": 4,
    "output": "out",
    "policy": {"name": "react"},
    "judge": {"name": "oracle"},
    "retries": {"attempts": 3, "keep_best": True},
    "lessons": {"lesson_tokens": 100},
}
RESULTS = {
    "format": FORMAT,
    "evaluator": {"name": "oracle", "version": "1"},
    "attempts": 2,
    "tasks": [],
}
ROW = {
    "prompt": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Where?"}]}
    ],
    "completion": [{"role": "assistant", "content": "Here"}],
    "images": ["a.png"],
    "trajectory": "t",
}


def values(things: Any) -> list[Any]:
    return [msgspec.to_builtins(thing) for thing in things]


def adapter(folder: Path) -> None:
    (folder / "adapter_model.safetensors").touch()
    check_adapter(folder)


def ranked_steps(path: Path) -> object:
    known: dict[str, dict[str, float]] = {}
    with _open_log(path, _About("prill ranking 1", "r", "t"), known, resume=True):
        return known


# Name of the file, what is in it (a text, a value, or the lines of a file of lines), and who reads
# it.
FILES: dict[str, tuple[str, Any, Callable[[Path], object]]] = {
    "captions": (
        "c.jsonl",
        values(
            Caption(id=f"sha256:{n}", captioner="c", image="a.png", caption="A shop")
            for n in range(3)
        ),
        lambda path: FileCaptioner(str(path)),
    ),
    "scores": (
        "s.json",
        {"scores": {"a_1": {"1": 0.5, "2": -1.0}}, "ranks": {"a_1": {"1": 0}}},
        read_scores,
    ),
    "steps that were ranked": (
        "s.steps.jsonl",
        [
            {"format": "prill ranking 1", "ranker": "r", "trajectories": "t"},
            *({"sample": f"a_{n}", "scores": {"1": 0.5}} for n in range(2)),
        ],
        ranked_steps,
    ),
    "service": (
        "s.toml",
        (ROOT / "examples/reward_service/service.toml").read_text(),
        ServeConfig.load,
    ),
    "reflexion": ("r.json", REFLEXION, ReflexionConfig.load),
    "filter": (
        "f.toml",
        'trajectories = ["t.jsonl"]\nverdicts = "v.jsonl"\noutput = "o"\n[filter]\nlevel = '
        '"step"\nper_task = 2\n',
        FilterConfig.load,
    ),
    "study": ("s.toml", (ROOT / "examples/filtered_bc/short.toml").read_text(), Study.load),
    "training": (
        "t.toml",
        'preset = "small-text"\nepochs = 2\nlearning_rate = 1e-4\n',
        lambda path: training_spec(str(path), model="m"),
    ),
    "rows": ("rows.jsonl", [{**ROW, "trajectory": f"t{n}"} for n in range(3)], read_rows),
    "gold turns": ("g.jsonl", [], GoldTurns),
    "reward": (
        "r.json",
        {"judge": "self-report", "kind": "success", "on_unscored": "abstain"},
        make_reward,
    ),
    "figures of a paper": (
        "p.toml",
        (ROOT / "papers/step/published/step.toml").read_text(),
        read_paper,
    ),
    "observations": (
        "w.jsonl",
        values(
            WatchRecord(kind="verdict", at="", id=f"{n}", verdict=Opinion(judge="j", success=True))
            for n in range(3)
        ),
        lambda path: list(read_watch(path, str)),
    ),
    "lessons": (
        "l.jsonl",
        values(Lesson(id=f"a{n}", text="Look twice.", status="failed") for n in range(3)),
        read_lessons,
    ),
    "results": ("r.json", RESULTS, read_results),
    "sentences": ("s.jsonl", [{"key": f"k{n}", "text": "a"} for n in range(3)], Sentences),
    "adapter": (
        "adapter_config.json",
        {"r": 8, "peft_type": "LORA"},
        lambda path: adapter(path.parent),
    ),
    "exemplars": (
        EXEMPLARS,
        [
            {
                "name": "click",
                "key": f"k {n}",
                "task": "Click",
                "steps": [{"action": "agent.click_xpath('//a')"}],
            }
            for n in range(3)
        ],
        lambda path: ExemplarMemory.load(path.parent, TfidfEmbedder()),
    ),
    "abstractions": (
        ABSTRACTIONS,
        {"click": {"code": ["x"]}},
        lambda path: ExemplarMemory.load(path.parent, TfidfEmbedder()),
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_of_longer_work_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, sample, read = FILES[kind]
    path = tmp_path / name
    if kind == "gold turns":
        sample = gold_turns(tmp_path)
    if kind == "abstractions":
        (tmp_path / EXEMPLARS).write_bytes(as_json(FILES["exemplars"][1][0]) + b"\n")

    def written(change: bytes | None) -> None:
        if isinstance(sample, str):
            path.write_bytes(
                sample.encode() if change is None else edited_bytes(sample.encode(), change)
            )
        elif isinstance(sample, list):
            lines = [*map(as_json, sample)]
            if change is not None:
                lines[1] = edited_json(sample[1], change)
            path.write_bytes(b"\n".join(lines) + b"\n")
        else:
            path.write_bytes(as_json(sample) if change is None else edited_json(sample, change))

    written(None)
    read(path)  # the sample itself is good

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        written(change)
        attempt(lambda: read(path))

    fuzz()


def gold_turns(folder: Path) -> list[Any]:
    from prill.papers.mind2web import format as mind2web

    (folder / "in").mkdir()
    (folder / "in/one_0.json").write_text(
        json.dumps([test_mind2web.task(name) for name in ("one", "two", "three")])
    )
    turns = [item for item in mind2web.load(folder / "in") if isinstance(item, Trajectory)]
    assert len(turns) == 3
    return values(turns)


@fuzzed
@given(edits)
def test_run_folder_is_taken_up_or_left(tmp_path: Path, change: bytes) -> None:
    whole = {
        "trajectories.jsonl": trajectory("first"),
        LABELS: label("first"),
        f"{PARTIAL}/0123456789abcdef.json": as_json({**RECORD, "id": "under way"}),
    }
    for name in (*whole, "interrupted.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(whole.get(name, b""))
    name = sorted(whole)[change[-1] % 3]
    middle = edited_json(LABEL if name == LABELS else RECORD, change)
    cut = change[-2:-1] > b"\x80"
    (tmp_path / name).write_bytes(
        middle if name.startswith(PARTIAL) else whole[name] + middle + (b"" if cut else b"\n")
    )
    before = (tmp_path / name).read_bytes()

    def take_up() -> bool:
        with closing(RunFolder(tmp_path)) as folder:
            assert "first" in folder
        return True

    if attempt(take_up) is None:
        # an end of line may have been added
        assert (tmp_path / name).read_bytes().startswith(before)
    else:
        assert next(iter(read_trajectories(tmp_path / "trajectories.jsonl"))).id == "first"
        assert next(iter(read_labels(tmp_path / LABELS))).id == "first"


REQUEST = {
    "custom_id": "r1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": []},
}
ANSWER = {
    "id": "x",
    "custom_id": "r1",
    "response": {"status_code": 200, "body": {"choices": []}},
    "error": None,
}
ENTRY = RequestFile(
    name="requests-01-001.jsonl",
    stage=1,
    model="m",
    base_url="http://h/v1",
    api_key_env="K",
    requests=2,
)
BATCH = msgspec.to_builtins(
    Manifest(
        evaluator=EvaluatorInfo("vlm", "1"),
        trajectories=("/t.jsonl",),
        secret="s",
        files=(ENTRY,),
        judge={"a": 1},
    )
)


@fuzzed
@given(edits)
def test_batch_folder_is_read_or_refused(tmp_path: Path, change: bytes) -> None:
    which = change[-1] % 3
    (tmp_path / "answers").mkdir(exist_ok=True)
    (tmp_path / MANIFEST).write_bytes(edited_json(BATCH, change) if which == 0 else as_json(BATCH))
    good = as_json({**REQUEST, "custom_id": "r0"}) + b"\n"
    (tmp_path / ENTRY.name).write_bytes(
        good + (edited_json(REQUEST, change) if which == 1 else as_json(REQUEST)) + b"\n"
    )
    outside = tmp_path / "out"
    answered = as_json({**ANSWER, "custom_id": "r0"}) + b"\n"
    outside.write_bytes(
        answered + (edited_json(ANSWER, change) if which == 2 else as_json(ANSWER)) + b"\n"
    )

    def read() -> object:
        with BatchFolder(tmp_path) as folder:
            folder.take(outside)
            with closing(Answers(folder)) as answers:
                return answers.get("r0"), answers.waiting

    found = attempt(read)
    for file in (tmp_path / "answers").iterdir():
        file.unlink()
    if which == 2:
        assert found is not None and found[0] == (200, b'{"choices": []}')  # type: ignore[index]


@fuzzed
@given(edits)
def test_study_is_taken_up_or_refused(tmp_path: Path, change: bytes) -> None:
    study, file = Study.load(ROOT / "examples/filtered_bc/short.toml"), tmp_path / "study.json"
    file.write_bytes(edited_json(json.loads(msgspec.json.encode(study)), change))
    attempt(lambda: _record_study(study, tmp_path, Audience()))
