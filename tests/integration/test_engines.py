"""Runs by the workers of an engine: the same verdicts as of a plain run, once each, whatever
becomes of a worker.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import pickle
import sys
import threading
import types
from contextvars import Context
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import prill
from prill.captioner.bulk import CaptionTally, caption_files
from prill.captioner.files import read_captions
from prill.captioner.recorded import GivenCaption
from prill.config.registry import OptionError
from prill.errors import (
    EndpointGoneError,
    MissingExtraError,
    NoEvidenceError,
    PrillError,
    UsageError,
)
from prill.evaluators.registry import make_judge
from prill.evaluators.scoring.scorer import score_files
from prill.io.shards import packing_for
from prill.models.client import OpenAIModel
from prill.models.transcripts.files import read_transcripts
from prill.protocols import Engine, Evaluator, Work
from prill.testing import MockServer
from prill.types import EvaluatorInfo, Observation, Trajectory, Verdict
from prill.work.engines import make_engine
from prill.work.ray_tasks import RayEngine, RaySpec
from tests.unit.test_scoring import verdicts, write

HAS_RAY = importlib.util.find_spec("ray") is not None


class Judge:
    """An even number is a success; 404 ends the run, 500 is a bug. Each call leaves a line."""

    def __init__(self, folder: Path) -> None:
        self.info = EvaluatorInfo("parity", "1")
        self.folder = folder
        self.error: PrillError = EndpointGoneError("nobody answers")

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return [o.screenshot for o in trajectory.observations if o.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0)
        number = int(trajectory.task.goal)
        if number == 404:
            raise self.error
        if number == 500:
            raise ZeroDivisionError("a bug")
        with (self.folder / "calls").open("a") as file:
            file.write(f"{trajectory.id}\n")
        if number < 0:
            return Verdict(
                id=trajectory.id, unscored="timeout", reason="too slow", evaluator=self.info
            )
        return Verdict(id=trajectory.id, success=number % 2 == 0, evaluator=self.info)

    @property
    def calls(self) -> list[str]:
        return (
            (self.folder / "calls").read_text().split() if (self.folder / "calls").exists() else []
        )


class Captioner:
    """The size of a picture; nothing for one of a single pixel."""

    name = "sizes"

    async def __call__(self, observation: Observation) -> str:
        assert observation.screenshot is not None
        with Image.open(observation.screenshot) as picture:
            if picture.width == 1:
                raise NoEvidenceError("too small")
            return f"{picture.width} wide"


class Loop:
    """An engine in this process, to which everything is sent pickled."""

    def __init__(self, broken_after: int = 10**6, workers: int = 2) -> None:
        self.broken_after, self.workers = broken_after, workers
        self.starts = self.calls = self.closed = 0

    def start(self) -> int:
        self.starts += 1
        return self.workers

    async def call(self, work: Work, part: bytes) -> bytes:
        self.calls += 1
        if self.calls > self.broken_after:
            raise OSError("the cluster is gone")
        there: Work = pickle.loads(pickle.dumps(work))
        # without what this process notes of its calls
        return await asyncio.create_task(there(part), context=Context())

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path)


async def test_engine_gives_what_a_plain_run_gives(tmp_path: Path, judge: Judge) -> None:
    first = write(tmp_path / "t.jsonl", [*range(300), -1, 500])
    with Path(first).open("ab") as file:
        file.write(b'\n{"id": "t7", "task": {"goal": "7"}}\r\n{"id": "x", "task": 3}\n')
    plain = await score_files([first], judge, tmp_path / "plain.jsonl")
    engine = Loop()
    spread = await score_files([first], judge, tmp_path / "v.jsonl", engine=engine)
    assert (spread.succeeded, spread.failed, spread.unscored, spread.read) == (
        plain.succeeded,
        plain.failed,
        plain.unscored,
        plain.read,
    )
    assert verdicts(tmp_path / "v.jsonl") == verdicts(tmp_path / "plain.jsonl")
    assert (engine.starts, engine.calls, engine.closed) == (1, 302, 1)


async def test_engine_judges_only_what_is_missing(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(20))), tmp_path / "v.jsonl"
    await score_files([path], judge, out, limit=12)
    write(tmp_path / "t.jsonl", [100, *range(1, 20)])
    tally = await score_files([path], judge, out, engine=Loop())
    assert (tally.skipped, tally.made, len(judge.calls)) == (11, 9, 21)
    assert verdicts(out)["t0"].key != ""
    engine = Loop(workers=3)
    tally = await score_files([path], judge, out, engine=engine)
    assert (tally.skipped, tally.made, tally.read, len(judge.calls)) == (20, 0, 20, 21)
    assert engine.starts == 0, "nothing was left to do"


async def test_calls_of_workers_are_transcribed_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = {"id": "a", "task": {"goal": "g"}, "final": {"caption": "The order was placed."}}
    path.write_text(json.dumps(row) + "\n")
    with MockServer() as server:
        judge = prill.judge(
            "modular", model=OpenAIModel("mock", base_url=server.base_url), captioner=GivenCaption()
        )
        tally = await score_files(
            [path], judge, tmp_path / "v.jsonl", engine=Loop(), transcripts=tmp_path / "calls"
        )
    assert tally.usage.calls == 1 and tally.untranscribed == 0
    (transcript,) = read_transcripts(tmp_path / "calls")
    assert transcript.id == "a" and len(transcript.calls) == 1


async def test_broken_engine_loses_no_verdict(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(1000, 1600))), tmp_path / "v.jsonl"
    engine = Loop(broken_after=400, workers=3)
    with pytest.raises(PrillError, match="cluster is gone.* same command again to resume"):
        await score_files([path], judge, out, engine=engine)
    assert engine.closed
    assert len(verdicts(out)) == 400
    assert (await score_files([path], judge, out, engine=Loop())).made == 200


async def test_error_of_a_worker_ends_the_run(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", [*range(300), 404, *range(300)]), tmp_path / "v.jsonl"
    with pytest.raises(EndpointGoneError, match="nobody answers"):
        await score_files([path], judge, out, engine=Loop())
    assert 280 <= len(verdicts(out)) < 330


async def test_stopped_engine_begins_nothing(tmp_path: Path, judge: Judge) -> None:
    stop, engine = asyncio.Event(), Loop()
    stop.set()
    path = write(tmp_path / "t.jsonl", list(range(600)))
    tally = await score_files([path], judge, tmp_path / "v.jsonl", engine=engine, stop=stop)
    assert tally.stopped and tally.made == engine.starts == 0


async def test_run_given_up_in_the_start_is_closed(tmp_path: Path, judge: Judge) -> None:
    starting, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    class Slow(Loop):
        def start(self) -> int:
            loop.call_soon_threadsafe(starting.set)
            go_on.wait()
            return super().start()

    engine, path = Slow(), write(tmp_path / "t.jsonl", [1, 2])
    run = asyncio.create_task(score_files([path], judge, tmp_path / "v.jsonl", engine=engine))
    await starting.wait()
    run.cancel()  # as the second Ctrl-C does
    await asyncio.sleep(0)
    assert not engine.closed, "nothing has started yet that could be closed"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (engine.starts, engine.calls, engine.closed) == (1, 0, 1) and not judge.calls


def test_calls_at_once_are_divided() -> None:
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", concurrency=5)
    with packing_for(3):
        assert pickle.loads(pickle.dumps(model)).concurrency == 2
    assert pickle.loads(pickle.dumps(model)).concurrency == model.concurrency == 5


async def test_judge_that_cannot_be_pickled_is_refused(tmp_path: Path, judge: Judge) -> None:
    path = write(tmp_path / "t.jsonl", [1])
    judge.unpicklable = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="judge 'parity' cannot be sent to other processes"):
        await score_files([path], judge, tmp_path / "v2.jsonl", engine=Loop())


async def test_engine_captions_each_picture_once(tmp_path: Path) -> None:
    states = []
    for number, width in enumerate([3, 3, 1, 5, 7]):
        Image.new("RGB", (width, 2)).save(tmp_path / f"{number}.png")
        states.append({"observation": {"screenshot": f"{number}.png"}, "action": {"kind": "click"}})
    (tmp_path / "4.png").unlink()
    path, out = tmp_path / "t.jsonl", tmp_path / "out" / "c.jsonl"
    path.write_text(json.dumps({"id": "a", "task": {"goal": "g"}, "steps": states}) + "\n")
    # One at a time: of two equal pictures, the line names the one that was read first.
    plain = await caption_files(
        [path], Captioner(), tmp_path / "out" / "plain.jsonl", concurrency=1
    )
    tally = await caption_files([path], Captioner(), out, engine=Loop(), concurrency=1)

    def counts(tally: CaptionTally) -> tuple[object, ...]:
        return tally.made, tally.equal, tally.seen, tally.files, dict(tally.unscored)

    assert counts(tally) == counts(plain) == (2, 1, 5, 5, {"no_evidence": 1, "input": 1})
    assert sorted(map(repr, read_captions(out))) == sorted(
        map(repr, read_captions(tmp_path / "out" / "plain.jsonl"))
    )
    again = await caption_files([path], Captioner(), out, engine=Loop())
    assert (again.made, again.kept) == (0, 3)


@pytest.mark.parametrize(
    "error",
    [
        MissingExtraError("torch", "local"),
        OptionError("k is unknown", "k"),
        EndpointGoneError("nothing answers"),
    ],
)
async def test_error_of_a_worker_keeps_its_words(
    tmp_path: Path, judge: Judge, error: PrillError
) -> None:
    judge.error = error
    with pytest.raises(type(error)) as told:
        await score_files(
            [write(tmp_path / "t.jsonl", [404])], judge, tmp_path / "v.jsonl", engine=Loop()
        )
    assert str(told.value) == str(error) and vars(told.value) == vars(error)


def test_engines_are_made_by_name(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Mine:\n    def start(self): return 1\n    call = close = start\n"
    )
    mine = make_engine(f"{tmp_path / 'own.py'}:Mine")
    assert mine.start() == 1
    with pytest.raises(UsageError, match="did you mean 'ray'"):
        make_engine("rays")
    if not HAS_RAY:
        with pytest.raises(MissingExtraError, match=r"pip install .*\[ray\]"):
            make_engine("ray", workers=2)
        return
    engine = make_engine({"name": "ray", "workers": 2, "gpus": 0.5})
    assert isinstance(engine, RayEngine) and engine.spec == RaySpec(workers=2, gpus=0.5)
    with pytest.raises(UsageError, match="workers"):
        make_engine("ray", workers=0)


class Ray(types.ModuleType):
    """A double of Ray: a cluster of 8 cores and 2 GPUs."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.exceptions = types.SimpleNamespace(RayError=OSError)
        self.settings: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.problem = ""
        self.shutdowns = 0

    def is_initialized(self) -> bool:
        return False

    def init(self, **settings: object) -> None:
        if self.problem:
            raise Exception(self.problem)  # as Ray does
        self.settings = settings

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0, "GPU": 2.0}

    def remote(self, **asked: Any) -> Any:
        self.asked = asked
        return lambda actor: types.SimpleNamespace(remote=actor)

    def kill(self, actor: object) -> None:
        pass

    def shutdown(self) -> None:
        self.shutdowns += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    double = Ray()
    monkeypatch.setitem(sys.modules, "ray", double)
    return double


@pytest.mark.parametrize(
    ("address", "said"),
    [(None, "Ray did not start on this machine"), ("there:1", "Ray at there:1")],
)
def test_failed_ray_start_is_one_error(ray: Ray, address: str | None, said: str) -> None:
    ray.problem = "\nThe current node timed out during startup.\nmore"
    with pytest.raises(
        UsageError, match=f"{said}.*The current node timed out during startup"
    ) as refused:
        RayEngine(RaySpec(address=address)).start()
    assert "more" not in str(refused.value).split()


def test_workers_are_as_many_as_have_place(ray: Ray) -> None:
    for spec, count in {RaySpec(): 8, RaySpec(gpus=0.5): 4, RaySpec(gpus=1, workers=9): 2}.items():
        engine = RayEngine(spec)
        assert engine.start() == count
        assert ray.settings["address"] == "local", "no cluster is joined that was not named"
        assert (ray.asked["num_cpus"], ray.asked["num_gpus"]) == (1, spec.gpus or None)
        before = ray.shutdowns
        engine.close()
        engine.close()
        assert ray.shutdowns == before + 1
    with pytest.raises(
        UsageError,
        match="no resources for a worker with a core and 3 GPUs: Ray has 8 cores and 2 GPUs",
    ):
        RayEngine(RaySpec(gpus=3)).start()


DEADLY = '''
import asyncio, os
from pathlib import Path
from prill.types import EvaluatorInfo, Verdict

class Judge:
    """An even number is a success. `deadly` ends the process that judges it, the first time."""

    def __init__(self, folder: str, deadly: int) -> None:
        self.folder, self.deadly = Path(folder), deadly
        self.info = EvaluatorInfo("parity", "1")

    def screenshots(self, trajectory):
        return []

    async def __call__(self, trajectory):
        await asyncio.sleep(0.002)
        number = int(trajectory.task.goal)
        if number == self.deadly and not (self.folder / "mark").exists():
            (self.folder / "mark").touch()
            os.kill(os.getpid(), 9)
        with (self.folder / f"calls{os.getpid()}").open("a") as file:
            file.write(trajectory.id + "\\n")
        return Verdict(id=trajectory.id, success=number % 2 == 0, evaluator=self.info)
'''


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed here: make test-frameworks")
# Ray's own: of its settings that it deprecates, of processes and files left to it
@pytest.mark.filterwarnings("ignore")
async def test_ray_outlives_a_killed_worker(tmp_path: Path) -> None:
    count = 500
    path, out = write(tmp_path / "t.jsonl", list(range(count))), tmp_path / "v.jsonl"
    (tmp_path / "own.py").write_text(DEADLY)
    judge: Evaluator = make_judge(
        f"{tmp_path / 'own.py'}:Judge", folder=str(tmp_path), deadly=count // 2
    )
    engine: Engine = make_engine("ray", workers=2)
    tally = await score_files([path], judge, out, engine=engine, concurrency=64)
    assert (tmp_path / "mark").exists()
    assert (tally.made, tally.succeeded) == (count, count // 2)
    assert len(verdicts(out)) == count
    calls = [id for file in tmp_path.glob("calls*") for id in file.read_text().split()]
    assert len(set(calls)) == count
    assert len(calls) - count < 80, "what was under way when the worker died, and no more"
    assert len(list(tmp_path.glob("calls*"))) >= 2, "one that died, and the one that replaced it"
