"""Several processes that judge together: the same verdicts, once each, whatever becomes of a
process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prill.captioner import GivenCaption
from prill.errors import EndpointGoneError, PrillError, UsageError
from prill.evaluators.outcome import CaptionJudge
from prill.evaluators.registry import make_judge
from prill.io.shards import Packing, Shard, packing_for
from prill.models.client import OpenAIModel
from prill.protocols import Evaluator
from prill.scoring.scorer import score_files
from prill.testing import Faults
from prill.testing.endpoint.server import serving
from prill.transcripts import read_transcripts
from tests.unit.test_scoring import verdicts, write

# A judge in a file of its own: no package has it, and it loads nothing that is slow.
JUDGE = '''
import asyncio, os
from pathlib import Path
from prill.errors import EndpointGoneError
from prill.types import EvaluatorInfo, Verdict

class Unmade(Exception):
    def __reduce__(self):
        return {}.__getitem__, ("a key that nobody has",)

ODD = {
    407: lambda id, info: None,
    408: lambda id, info: Verdict(id=id, success=1, evaluator=info),
    409: lambda id, info: Verdict(id="t7", success=True, evaluator=info),
}

class Judge:
    """An even number is a success. 666 is the end of the process, 13 the first time; 404 of the run; 1000 lasts long."""

    def __init__(self, folder: str = "") -> None:
        self.folder = Path(folder)
        self.info = EvaluatorInfo("parity", "1")
        self.unheard = []

    def screenshots(self, trajectory):
        return [state.screenshot for state in trajectory.observations if state.screenshot]

    async def __call__(self, trajectory):
        await asyncio.sleep(0.001)
        for path in self.screenshots(trajectory):
            Path(path).write_bytes(b"a later picture")
        number = int(trajectory.task.goal)
        mark = self.folder / "mark"
        if number == 666 or (number == 13 and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), 9)
        if number == 404:
            raise EndpointGoneError("nobody answers")
        if number == 405:
            raise asyncio.CancelledError
        if number == 406:
            raise Unmade("out of the ordinary")
        if number in ODD:
            return ODD[number](trajectory.id, self.info)
        if number == 1000:
            (self.folder / f"pid{os.getpid()}").touch()
            await asyncio.sleep(600)
        print("words of a judge")
        return Verdict(id=trajectory.id, success=number % 2 == 0, evaluator=self.info, reason=str(os.getpid()))
'''  # noqa: E501


@pytest.fixture
def judge(tmp_path: Path) -> Evaluator:
    (tmp_path / "own.py").write_text(JUDGE)
    return make_judge(f"{tmp_path / 'own.py'}:Judge", folder=str(tmp_path))


async def test_processes_make_the_same_verdicts(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", list(range(40)))
    lines = [msgspec.json.decode(line) for line in Path(path).read_bytes().splitlines()]
    lines = [
        {**line, "final": {"caption": f"truth={'success' if i % 3 else 'failure'}"}}
        for i, line in enumerate(lines)
    ]
    Path(path).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    found: list[dict[str, Any]] = []
    async with serving(Faults(latency=0.02, no_temperature=True)) as (endpoint, url):
        for processes in (1, 2):
            endpoint.requests = endpoint.peak_in_flight = 0
            asked = CaptionJudge(OpenAIModel("m", base_url=url, concurrency=5), GivenCaption())
            out = tmp_path / f"v{processes}.jsonl"
            tally = await score_files(
                [path], asked, out, processes=processes, transcripts=out.with_suffix("")
            )
            assert (tally.succeeded, tally.failed, tally.usage.calls) == (26, 14, 40)
            assert endpoint.peak_in_flight <= 5
            assert endpoint.requests < 60
            found.append(
                {id: (v.success, v.score, v.key, v.usage) for id, v in verdicts(out).items()}
            )
            assert {t.id for t in read_transcripts(out.with_suffix(""))} == found[-1].keys()
    assert found[0] == found[1]


async def test_processes_share_and_resume(
    tmp_path: Path, judge: Evaluator, capfd: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(60))), tmp_path / "v.jsonl"
    (tmp_path / "mark").touch()
    await score_files([path], judge, out, limit=20)
    seen: list[int] = []
    tally = await score_files(
        [path], judge, out, processes=2, progress=lambda tally: seen.append(tally.read)
    )
    assert (tally.skipped, tally.made, seen[-1]) == (20, 40, 60)
    found = verdicts(out)
    assert all(found[f"t{i}"].success == (i % 2 == 0) for i in range(60))
    makers = {v.reason for v in found.values()}
    assert len(makers) == 3
    assert str(os.getpid()) in makers
    assert capfd.readouterr().out.count("words") == 20  # those of other processes go to stderr


async def test_judge_in_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path, file = write(tmp_path / "t.jsonl", [1, 2, 4]), tmp_path / os.fsdecode(b"own\xff.py")
    file.write_text(JUDGE)
    tally = await score_files(
        [path], make_judge(f"{file}:Judge"), tmp_path / "v.jsonl", processes=2
    )
    assert (tally.succeeded, tally.failed) == (2, 1)


@pytest.mark.parametrize("processes", [1, 2])
async def test_picture_that_changes_meanwhile_is_judged_again(
    tmp_path: Path, judge: Evaluator, processes: int
) -> None:
    task = {"id": "even", "goal": "2", "platform": "web"}
    lines = [
        {"id": f"t{i}", "task": task, "steps": [], "final": {"screenshot": f"{i}.png"}}
        for i in range(2)
    ]
    path, out = tmp_path / "t.jsonl", tmp_path / "v.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(b"a picture")
    made = [
        (await score_files([path], judge, out, processes=processes, concurrency=2)).made
        for _ in range(3)
    ]
    assert made == [2, 2, 0]


async def test_killed_process_loses_nothing(tmp_path: Path, judge: Evaluator) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(40))), tmp_path / "v.jsonl"
    tally = await score_files([path], judge, out, processes=2, concurrency=8)
    assert (tally.made, tally.succeeded) == (40, 20)
    assert len(verdicts(out)) == 40
    assert (tmp_path / "mark").exists()


async def test_deadly_trajectory_ends_the_run(tmp_path: Path, judge: Evaluator) -> None:
    path, out = write(tmp_path / "t.jsonl", [2, 4, 666]), tmp_path / "v.jsonl"
    await score_files([path], judge, out, limit=2)
    with pytest.raises(
        PrillError, match=r"3 worker processes died at the same shard.*exit code -9"
    ):
        await score_files([path], judge, out, processes=2, concurrency=2)
    assert verdicts(out).keys() == {"t0", "t1"}


async def test_error_there_ends_the_run_here(tmp_path: Path, judge: Evaluator) -> None:
    path, out = write(tmp_path / "t.jsonl", [2, 404, *range(100, 200)]), tmp_path / "v.jsonl"
    with pytest.raises(EndpointGoneError, match="nobody answers"):
        await score_files([path], judge, out, processes=2, concurrency=2)
    there = out.read_bytes().count(b"\n")
    assert there < 100
    write(tmp_path / "t.jsonl", [2, 4, *range(100, 200)])
    tally = await score_files([path], judge, out)
    assert (tally.skipped, tally.made) == (there, 102 - there)


async def test_odd_error_there_hangs_nobody(tmp_path: Path, judge: Evaluator) -> None:
    path = write(tmp_path / "t.jsonl", [2, 405])
    with pytest.raises(RuntimeError, match="the judge was cancelled"):
        await asyncio.wait_for(
            score_files([path], judge, tmp_path / "v.jsonl", processes=2, concurrency=2), 120
        )


@pytest.mark.parametrize("processes", [1, 2])
async def test_what_a_judge_raises_costs_its_trajectory(
    tmp_path: Path, judge: Evaluator, processes: int
) -> None:
    path, out = write(tmp_path / "t.jsonl", [2, 406, 4]), tmp_path / "v.jsonl"
    tally = await score_files([path], judge, out, processes=processes, concurrency=2)
    assert (tally.succeeded, dict(tally.unscored)) == (2, {"parse": 1})
    assert tally.problems == ["t1: parse: the judge 'parity' raised Unmade"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (407, "a NoneType"),
        (408, r"Expected `bool \| null`, got `int` - at `\$.success`"),
        (409, "one about 't7'"),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
async def test_odd_verdict_is_one_clear_error(
    tmp_path: Path, judge: Evaluator, number: int, said: str, processes: int
) -> None:
    path, out = write(tmp_path / "t.jsonl", [2, number]), tmp_path / "v.jsonl"
    with pytest.raises(
        UsageError,
        match=rf"the judge 'parity' returned an invalid verdict for 't1' \({said}\); return a",
    ):
        await score_files([path], judge, out, processes=processes, concurrency=2)
    assert out.read_bytes().count(b"\n") <= 1


async def test_unfit_judge_is_one_clear_error(tmp_path: Path, judge: Any) -> None:
    path, out = write(tmp_path / "t.jsonl", [1, 2]), tmp_path / "v.jsonl"
    judge.unheard.append(lambda: None)
    with pytest.raises(
        UsageError, match=r"judge 'parity' cannot be sent to other processes \(Can't (pickle|get)"
    ):
        await score_files([path], judge, out, processes=2)
    assert (await score_files([path], judge, out)).made == 2


async def test_judge_unknown_there_is_an_error(
    tmp_path: Path, judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.jsonl", [1, 2])
    monkeypatch.setattr(type(judge), "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Judge", type(judge), raising=False)
    with pytest.raises(UsageError, match=r"cannot be sent to other processes \(AttributeError"):
        await score_files([path], judge, tmp_path / "v.jsonl", processes=2)


async def test_dropped_run_leaves_no_process(tmp_path: Path, judge: Evaluator) -> None:
    path = write(tmp_path / "t.jsonl", [1000, 1000])
    run = asyncio.create_task(score_files([path], judge, tmp_path / "v.jsonl", processes=2))
    pids = await asyncio.to_thread(at_work, tmp_path, 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not any(is_alive(pid) for pid in pids)


def test_killed_run_leaves_no_process(tmp_path: Path, judge: Evaluator) -> None:
    path = write(tmp_path / "t.jsonl", [1000, 1000])
    words = [
        "score",
        path,
        "-o",
        str(tmp_path / "v.jsonl"),
        "--judge",
        f"{tmp_path / 'own.py'}:Judge",
        "--processes",
        "2",
    ]
    words += ["--folder", f"{tmp_path}"]
    run = subprocess.Popen(
        [sys.executable, "-m", "prill", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pids = at_work(tmp_path, 2)
    run.send_signal(signal.SIGKILL)
    run.wait()
    end = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, "processes outlive the run"
        time.sleep(0.01)


def at_work(folder: Path, count: int) -> list[int]:
    """The processes of judges that are at a long task."""
    end = time.monotonic() + 60
    while len(found := list(folder.glob("pid*"))) < count:
        assert time.monotonic() < end, "the processes do not begin"
        time.sleep(0.01)
    return [int(path.name.removeprefix("pid")) for path in found]


def is_alive(pid: int) -> bool:
    """Whether the process is there, and has not ended already without anybody having noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_calls_at_once_are_divided(tmp_path: Path) -> None:
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", concurrency=5)
    shares = []
    for number in (1, 2, 3):
        with packing_for(Packing(Shard(number, 3), tmp_path)):
            shares.append(pickle.loads(pickle.dumps(model)).concurrency)
    assert shares == [2, 2, 1]
    assert pickle.loads(pickle.dumps(model)).concurrency == model.concurrency == 5


def test_a_pipe_is_divided_among_processes(tmp_path: Path) -> None:
    """Each process reads what was saved of the pipe, and the verdicts leave through another one,
    once each.
    """
    path = write(tmp_path / "t.jsonl", list(range(40)))
    (tmp_path / "own.py").write_text(JUDGE)
    command = [
        sys.executable,
        "-m",
        "prill",
        "score",
        "-",
        "-o",
        "-",
        "--judge",
        f"{tmp_path / 'own.py'}:Judge",
    ]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path), "--processes", "2"],
        input=Path(path).read_bytes(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    found = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr.decode()
    assert len(found) == len({verdict["id"] for verdict in found}) == 40
    assert sum(verdict["success"] for verdict in found) == 20
