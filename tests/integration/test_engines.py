"""Runs by the workers of an engine: the same verdicts as of a plain run, once each, whatever
becomes of a worker.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import os
import pickle
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.captioner.bulk import CaptionTally, caption_files
from prill.captioner.files import read_captions
from prill.config.registry import OptionError
from prill.errors import (
    EndpointGoneError,
    MissingExtraError,
    NoEvidenceError,
    PrillError,
    UsageError,
)
from prill.evaluators.registry import make_judge
from prill.io.verdict_log import VerdictLog
from prill.protocols import Engine, Evaluator, Work
from prill.scoring import processes, ray_tasks
from prill.scoring.engines import make_engine
from prill.scoring.ray_tasks import RayEngine, RaySpec
from prill.scoring.scorer import score_files
from prill.scoring.shards import Shards, shard_path
from prill.types import EvaluatorInfo, Observation, Trajectory, Verdict
from tests.unit.test_scoring import verdicts, write

HAS_RAY = importlib.util.find_spec("ray") is not None


class Judge:
    """An even number is a success; 404 ends the run. Each call leaves a line."""

    def __init__(self, folder: Path, fatal: int = 404) -> None:
        self.info = EvaluatorInfo("parity", "1")
        self.folder, self.fatal = folder, fatal
        self.error: PrillError = EndpointGoneError("nobody answers")

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return [o.screenshot for o in trajectory.observations if o.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0)
        number = int(trajectory.task.goal)
        if number == self.fatal:
            raise self.error
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
    """An engine in this process: parts one after another, those in `lost` three times more after
    they were done.
    """

    def __init__(
        self, lost: Sequence[int] = (), broken_after: int = 10**6, workers: int = 2
    ) -> None:
        self.lost, self.broken_after, self.workers = lost, broken_after, workers
        self.parts = self.closed = 0

    def start(self) -> int:
        return self.workers

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        work = pickle.loads(pickle.dumps(work))
        for number, part in enumerate(parts):
            self.parts += 1
            if number == self.broken_after:
                raise OSError("the cluster is gone")
            for _ in range(3 * self.lost.count(number)):
                asyncio.run(_of(work, part))
            yield asyncio.run(_of(work, part))

    def close(self) -> None:
        self.closed += 1


async def _of(work: Work, part: bytes) -> bytes:
    return await work(part)


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path)


async def test_engine_gives_what_a_plain_run_gives(tmp_path: Path, judge: Judge) -> None:
    first = write(tmp_path / "a.jsonl", [*range(300), -1])
    with Path(first).open("ab") as file:
        file.write(
            b'\n{"id": "t7", "task": {"goal": "7"}}\r\n{"id": "x", "task": 3}\n{\n "id": "p",\n '
            b'"task": {"goal": "8"}\n}\n'
        )
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(
        gzip.compress(b"\xef\xbb\xbf" + json.dumps({"id": "z", "task": {"goal": "2"}}).encode())
    )
    plain = await score_files([first, packed], judge, tmp_path / "plain.jsonl")
    spread = await score_files([first, packed], judge, tmp_path / "v.jsonl", engine=Loop())
    assert (spread.succeeded, spread.failed, spread.unscored, spread.read) == (
        plain.succeeded,
        plain.failed,
        plain.unscored,
        plain.read,
    )
    assert verdicts(tmp_path / "v.jsonl") == verdicts(tmp_path / "plain.jsonl")
    assert not list(tmp_path.glob("*.shards"))


async def test_engine_judges_only_what_is_missing(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(20))), tmp_path / "v.jsonl"
    await score_files([path], judge, out, limit=12)
    write(tmp_path / "t.jsonl", [100, *range(1, 20)])
    tally = await score_files([path], judge, out, engine=Loop())
    assert (tally.skipped, tally.made, len(judge.calls)) == (11, 9, 21)
    assert verdicts(out)["t0"].key != ""
    tally = await score_files([path], judge, out, engine=Loop(workers=3))
    assert (tally.skipped, tally.made, tally.read, len(judge.calls)) == (20, 0, 20, 21)


async def test_pictures_are_looked_at_by_workers(tmp_path: Path, judge: Judge) -> None:
    picture, out = tmp_path / "p.png", tmp_path / "v.jsonl"
    Image.new("RGB", (4, 4)).save(picture)
    path = tmp_path / "t.jsonl"
    path.write_text(
        json.dumps({"id": "a", "task": {"goal": "2"}, "final": {"screenshot": "p.png"}}) + "\n"
    )
    await score_files([path], judge, out, engine=Loop())
    assert (await score_files([path], judge, out, engine=Loop())).skipped == 1
    Image.new("RGB", (5, 5)).save(picture)
    assert (await score_files([path], judge, out, engine=Loop())).made == 1
    assert len(verdicts(out)) == 1


async def test_shard_taken_over_is_not_judged_twice(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", [*range(10), -1]), tmp_path / "v.jsonl"
    tally = await score_files([path], judge, out, engine=Loop(lost=[0]))
    assert (tally.made, tally.skipped) == (11, 0)
    assert len(verdicts(out)) == len(judge.calls) == 11


async def test_broken_engine_loses_no_verdict(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(1000, 1600))), tmp_path / "v.jsonl"
    engine = Loop(broken_after=2, workers=3)
    with pytest.raises(OSError, match="cluster is gone"):
        await score_files([path], judge, out, engine=engine)
    assert engine.closed
    assert len(verdicts(out)) == 400
    assert (await score_files([path], judge, out, engine=Loop())).made == 200


async def test_shards_left_by_a_crash_are_taken_up(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(4))), tmp_path / "v.jsonl"
    await score_files([path], judge, tmp_path / "there.jsonl", limit=2)
    shards = Shards(out, judge.info)
    shards.begin()
    shard_path(shards.folder, 0).write_bytes(
        (tmp_path / "there.jsonl").read_bytes() + b'{"id":"t2","succ'
    )
    tally = await score_files([path], judge, out, engine=Loop())
    assert (tally.skipped, tally.made, len(verdicts(out))) == (2, 2, 4)
    shards.begin()
    with pytest.raises(UsageError, match="contains shards of another judge"):
        await score_files(
            [path], make_judge("self-report"), tmp_path / "v2.jsonl", engine=Loop(), limit=1
        )
        Shards(tmp_path / "v3.jsonl", judge.info).begin()
        await score_files(
            [path], make_judge("self-report"), tmp_path / "v3.jsonl", engine=Loop(), limit=1
        )
    await score_files([path], judge, out, engine=Loop(), resume=False)
    assert (tmp_path / "v.jsonl.shards.bak").is_dir()


async def test_plain_run_gathers_shards_of_a_crash(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(4))), tmp_path / "v.jsonl"
    await score_files([path], judge, tmp_path / "there.jsonl", limit=2)
    shards = Shards(out, judge.info)
    shards.begin()
    (tmp_path / "there.jsonl").rename(shard_path(shards.folder, 0))
    tally = await score_files([path], judge, out)
    assert (tally.skipped, tally.made, len(judge.calls)) == (2, 2, 4)
    assert not shards.folder.exists()


async def test_kill_while_a_folder_goes_blocks_nobody(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", [1]), tmp_path / "v.jsonl"
    shards = Shards(out, judge.info)
    shards.begin()
    (shards.folder / "000000.attempts").touch()
    (shards.folder / "manifest.json").unlink()
    assert (await score_files([path], judge, out, engine=Loop())).made == 1
    shards.folder.mkdir()
    (shards.folder / "mine.jsonl").write_text("{}")
    with pytest.raises(UsageError, match="is not a folder of shards"):
        await score_files([path], judge, out, engine=Loop())
    assert (await score_files([path], judge, out)).skipped == 1
    assert (shards.folder / "mine.jsonl").exists()


async def test_error_of_a_worker_ends_the_run(tmp_path: Path, judge: Judge) -> None:
    path, out = write(tmp_path / "t.jsonl", [*range(300), 404, *range(300)]), tmp_path / "v.jsonl"
    with pytest.raises(EndpointGoneError, match="nobody answers"):
        await score_files([path], judge, out, engine=Loop())
    assert 150 <= len(verdicts(out)) < 200


async def test_stopped_engine_begins_nothing_more(tmp_path: Path, judge: Judge) -> None:
    path, out, stop = (
        write(tmp_path / "t.jsonl", list(range(600))),
        tmp_path / "v.jsonl",
        asyncio.Event(),
    )
    stop.set()
    tally = await score_files([path], judge, out, engine=Loop(), stop=stop)
    assert tally.stopped and tally.made == 0
    shards = Shards(out, judge.info)
    shards.begin()
    shards.stop()
    assert sorted(file.name for file in shards.folder.iterdir()) == ["manifest.json", "stop"]


async def test_run_given_up_in_the_start_is_closed(tmp_path: Path, judge: Judge) -> None:
    path, starting, go_on, stopped = (
        write(tmp_path / "t.jsonl", [1, 2]),
        asyncio.Event(),
        threading.Event(),
        asyncio.Event(),
    )
    loop = asyncio.get_running_loop()

    class Slow(Loop):
        def start(self) -> int:
            loop.call_soon_threadsafe(starting.set)
            go_on.wait()
            return 1

        def close(self) -> None:
            super().close()
            if self.closed == 2:
                loop.call_soon_threadsafe(stopped.set)

    engine = Slow()
    run = asyncio.create_task(score_files([path], judge, tmp_path / "v.jsonl", engine=engine))
    await starting.wait()
    run.cancel()  # as the second Ctrl-C does
    with pytest.raises(asyncio.CancelledError):
        await run
    assert engine.closed == 1, "nothing has started yet that could be closed"
    go_on.set()
    await stopped.wait()
    assert engine.parts == 0 and not judge.calls
    assert (await score_files([path], judge, tmp_path / "v.jsonl", engine=Loop())).made == 2


async def test_engine_refuses_what_it_cannot_do(tmp_path: Path, judge: Judge) -> None:
    path = write(tmp_path / "t.jsonl", [1])
    with pytest.raises(UsageError, match="workers of its own"):
        await score_files([path], judge, tmp_path / "v.jsonl", engine=Loop(), processes=2)
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
    shards = Shards(out, Captioner.name)
    shards.begin()
    out.rename(shard_path(shards.folder, 0))
    again = await caption_files([path], Captioner(), out)
    assert (again.made, again.kept) == (0, 3)
    assert not shards.folder.exists()


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
    file = tmp_path / "e.toml"
    file.write_text('name = "tests.integration.test_engines:Loop"\nbroken_after = 3\n')
    (tmp_path / "own.py").write_text(
        "class Mine:\n    def start(self): return 1\n    run = close = start\n"
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


@pytest.mark.parametrize(
    ("address", "said"),
    [(None, "Ray did not start on this machine"), ("there:1", "Ray at there:1")],
)
def test_failed_ray_start_is_one_error(
    monkeypatch: pytest.MonkeyPatch, address: str | None, said: str
) -> None:
    def init(**settings: object) -> None:
        assert settings["address"] == (address or "local"), (
            "no cluster is joined that was not named"
        )
        raise Exception("\nThe current node timed out during startup.\nmore")  # as Ray does

    ray = types.ModuleType("ray")
    ray.__spec__ = ModuleSpec("ray", None)
    monkeypatch.setattr(ray, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(
        UsageError, match=f"{said}.*The current node timed out during startup"
    ) as refused:
        ray_tasks.start(RaySpec(address=address))
    assert "more" not in str(refused.value).split()


def test_workers_are_as_many_as_have_place(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = types.ModuleType("ray")
    monkeypatch.setattr(ray, "init", lambda **settings: None, raising=False)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0}, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = [
        ray_tasks.start(spec)
        for spec in (RaySpec(), RaySpec(cpus=3), RaySpec(gpus=0.5), RaySpec(gpus=1, workers=9))
    ]
    assert found == [8, 2, 4, 9]
    with pytest.raises(
        UsageError,
        match="no resources for a worker with 1 cores and 3 GPUs: Ray has 8 cores and 2 GPUs",
    ):
        ray_tasks.start(RaySpec(gpus=3))


def test_tasks_ask_ray_for_their_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def remote(**settings: Any) -> Any:
        asked.append(settings)
        return lambda work: types.SimpleNamespace(remote=lambda *given: given)

    ray = types.ModuleType("ray")
    stubs = {
        "remote": remote,
        "wait": lambda left: (left[:1], left[1:]),
        "get": lambda given: given[1],
    }
    for name, stub in {**stubs, "exceptions": types.SimpleNamespace(RayError=OSError)}.items():
        monkeypatch.setattr(ray, name, stub, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert list(ray_tasks.run(RaySpec(cpus=2, gpus=0.5), b"work", [b"a", b"b"])) == [b"a", b"b"]
    assert list(ray_tasks.run(RaySpec(), b"work", [b"a"])) == [b"a"]
    assert asked == [
        {"num_cpus": 2, "num_gpus": 0.5, "max_retries": 2},
        {"num_cpus": 1.0, "num_gpus": None, "max_retries": 2},
    ]


def test_process_ends_with_the_one_that_began_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    there, here = os.pipe()
    with os.fdopen(there, "rb") as commands:
        thread = processes.end_with(commands, lambda: ended.append("ray"))
        assert not ended
        os.close(here)
        thread.join()
    assert ended == ["ray", 0]


RAY_IS_LOST = '''
import os, pathlib, types

def init(**settings):
    print("pages of Ray", flush=True)
    if (busy := pathlib.Path(__file__).with_name("busy")).exists():
        busy.unlink()
        raise Exception("The current node timed out during startup.")

def cluster_resources(): return {"CPU": 2.0}
def shutdown(): pass
exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))

def remote(**settings):
    return lambda function: types.SimpleNamespace(remote=lambda *given: (function, given))

def wait(running):
    return running[:1], running[1:]

done = []

def get(task):
    """Works off the first shard; then that happens."""
    if done:
        THAT
    done.append(task)
    return task[0](*task[1])
'''


def fake_ray(folder: Path, that: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a Ray found that does that after the first shard."""
    folder.mkdir()
    (folder / "ray.py").write_text(RAY_IS_LOST.replace("THAT", that))
    monkeypatch.syspath_prepend(folder)


def test_ray_is_started_twice_if_need_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ray(tmp_path / "fake", "pass", monkeypatch)
    (tmp_path / "fake" / "busy").touch()
    engine = make_engine("ray")
    assert engine.start() == 2
    engine.close()
    assert not (tmp_path / "fake" / "busy").exists()


@pytest.mark.parametrize(
    ("that", "said", "written"),
    [
        (
            "os._exit(1)  # as Ray does where a server of its own is lost",
            "was lost",
            "pages of Ray",
        ),
        (
            "raise RuntimeError('of a kind that nobody expects')",
            "was lost",
            "of a kind that nobody expects",
        ),
        ("raise exceptions.RayError('\\nno more place\\nmore')", "stopped: no more place", None),
    ],
)
async def test_lost_ray_keeps_what_was_judged(
    tmp_path: Path,
    judge: Judge,
    monkeypatch: pytest.MonkeyPatch,
    that: str,
    said: str,
    written: str | None,
) -> None:
    fake_ray(tmp_path / "fake", that, monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path, out = write(tmp_path / "t.jsonl", list(range(1000, 1300))), tmp_path / "v.jsonl"
    with pytest.raises(PrillError, match=f"^Ray {said}.* same command again to resume$") as lost:
        await score_files([path], judge, out, engine="ray")
    logs = [log for log in tmp_path.glob("prill-ray-*.log") if str(log) in str(lost.value)]
    assert [written in log.read_text() for log in logs if written] == ([True] if written else [])
    assert len(verdicts(out)) == 150 and not list(tmp_path.glob("*.shards"))
    assert (await score_files([path], judge, out)).made == 150
    assert len(judge.calls) == 300


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
@pytest.mark.parametrize(
    "count",
    [
        500,
        pytest.param(
            20_000,
            marks=pytest.mark.skipif(
                "PRILL_LONG" not in os.environ, reason="PRILL_LONG=1: two minutes"
            ),
        ),
    ],
)
# Ray's own: of its settings that it deprecates, of processes and files left to it
@pytest.mark.filterwarnings("ignore")
async def test_ray_outlives_a_killed_worker(tmp_path: Path, count: int) -> None:
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
    assert len(calls) - count < 200, (
        "what was judged and not yet written when the worker died, and no more"
    )
    assert len(list(tmp_path.glob("calls*"))) >= 2, "one that died, and whoever took over its shard"
    log = VerdictLog(out, judge.info)
    log.close()
