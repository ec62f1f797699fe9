"""AgentLab's result folders, with pickles of classes of the same shape as its own, made here and
forgotten before reading.
"""

from __future__ import annotations

import collections
import enum
import gzip
import json
import os
import pickle
import sys
import tracemalloc
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from prill.datasets.formats.agentlab import load, load_labels
from prill.datasets.reading.safe_pickle import StandIn, load_pickle
from prill.types import LabelRecord, Trajectory


@dataclass
class StepInfo:
    step: int
    obs: dict[str, Any] | None
    action: str | None
    agent_info: Any = None
    reward: float = 1.0
    stats: dict[str, float] = field(default_factory=dict)


@dataclass
class AgentInfo:
    think: str | None = None
    chat_messages: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class EnvArgs:
    task_name: str
    task_seed: int | None = None


class Level(enum.Enum):
    LOW = 1


@dataclass
class Args:
    agent_name: str
    flags: Any = Level.LOW


@dataclass
class ExpArgs:
    agent_args: Args
    env_args: EnvArgs
    exp_dir: Any = field(default_factory=lambda: PurePosixPath("/home/someone/runs"))


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The classes above pretend to come from a package that is gone when the pickles are read."""
    module = types.ModuleType("vanished.loop")
    for cls in (StepInfo, AgentInfo, EnvArgs, Level, Args, ExpArgs):
        monkeypatch.setattr(cls, "__module__", "vanished.loop")
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, "vanished.loop", module)
    monkeypatch.setitem(sys.modules, "vanished", types.ModuleType("vanished"))
    yield monkeypatch


def packed(path: Path, value: object, protocol: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(pickle.dumps(value, protocol=protocol)))


def run(
    folder: Path, *actions: str | None, protocol: int = 4, tree: str | None = None, **summary: Any
) -> Path:
    import numpy

    for i, action in enumerate(actions):
        observation = {
            "goal": "Buy tea",
            "url": f"http://x/{i}",
            "axtree_txt": tree or f"tree {i}",
            "axtree_object": {"nodes": [{"nodeId": "1"}]},
            "active_page_index": numpy.asarray([0]),
            "extra": collections.OrderedDict(a=1),
        }
        packed(
            folder / f"step_{i}.pkl.gz",
            StepInfo(i, observation, action, AgentInfo(f"thought {i}", [Level.LOW])),
            protocol,
        )
        (folder / f"screenshot_step_{i}.png").write_bytes(b"picture %d" % i)
    args = ExpArgs(Args("GenericAgent-x"), EnvArgs("webarena.resized.24", 7))
    (folder / "exp_args.pkl").write_bytes(pickle.dumps(args, protocol=protocol))
    (folder / "summary_info.json").write_text(
        json.dumps({"cum_reward": 1, "terminated": True, **summary}), encoding="utf-8"
    )
    return folder


def vanish(foreign: pytest.MonkeyPatch) -> None:
    foreign.delitem(sys.modules, "vanished.loop")
    foreign.delitem(sys.modules, "vanished")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_run_read_without_its_classes(
    tmp_path: Path, foreign: pytest.MonkeyPatch, protocol: int
) -> None:
    folder = run(
        tmp_path / "study" / "run1",
        "click('4')",
        "send_msg_to_user('done')",
        None,
        protocol=protocol,
    )
    packed(
        folder / "goal_object.pkl.gz",
        [{"type": "text", "text": "Buy"}, {"type": "image_url", "image_url": {}}],
    )
    vanish(foreign)
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.id, trajectory.agent, trajectory.answer) == (
        "study/run1",
        "GenericAgent-x",
        "done",
    )
    assert (trajectory.task.id, trajectory.task.site, trajectory.task.goal) == (
        "webarena.24",
        "webarena",
        "Buy\n[image]",
    )
    assert [(s.action.kind, s.thought, s.observation.text) for s in trajectory.steps] == [
        ("click", "thought 0", "tree 0"),
        ("answer", "thought 1", "tree 1"),
    ]
    assert trajectory.final is not None
    assert (trajectory.final.url, Path(str(trajectory.final.screenshot)).read_bytes()) == (
        "http://x/2",
        b"picture 2",
    )
    assert trajectory.metadata == {
        "benchmark_task_id": "webarena.resized.24",
        "seed": 7,
        "terminated": True,
    }
    assert "vanished" not in sys.modules


def test_bids_read_from_the_state(
    tmp_path: Path, foreign: pytest.MonkeyPatch, shop_axtree: str
) -> None:
    run(
        tmp_path,
        "click('237')",
        "fill('a12', 'red shoes')",
        "select_option('44', 'Blue')",
        "click('12')",
        tree=shop_axtree,
    )
    vanish(foreign)
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert [(s.action.text, s.action.target, s.action.value) for s in trajectory.steps] == [
        ("click('237')", "[237] button 'Add to Cart'", None),
        ("fill('a12', 'red shoes')", "[a12] searchbox 'Search'", "red shoes"),
        ("select_option('44', 'Blue')", "[44] combobox 'Color'", "Blue"),
        ("click('12')", "12", None),
    ]


def test_label_undecided_after_env_error(tmp_path: Path, foreign: pytest.MonkeyPatch) -> None:
    run(tmp_path / "a", "click('4')")
    run(tmp_path / "b", "click('4')", cum_reward=0)
    run(tmp_path / "c", "click('4')", cum_reward=0, err_msg="Timeout", terminated=None)
    # AgentLab keeps an answer that could not be read in the same field, also when the run went on
    # to its end.
    run(
        tmp_path / "cc",
        "click('4')",
        cum_reward=0,
        err_msg="ParseError",
        terminated=False,
        truncated=True,
    )
    (run(tmp_path / "d", "click('4')") / "summary_info.json").unlink()
    run(tmp_path / "_moved", "click('4')")
    vanish(foreign)
    assert list(load_labels(tmp_path)) == [
        LabelRecord(id="a", success=True, source="oracle"),
        LabelRecord(id="b", success=False, source="oracle"),
        LabelRecord(id="c", success=None, source="oracle", note="an error ended the run"),
        LabelRecord(id="cc", success=False, source="oracle"),
    ]
    runs = {item.id: item for item in load(tmp_path) if isinstance(item, Trajectory)}
    assert {id: run.error for id, run in runs.items()} == {
        **dict.fromkeys(("a", "b", "cc", "d")),
        "c": "Timeout",
    }
    assert not [word for word in ("reward", "oracle") if word in repr(runs)]


class Evil:
    """Runs a command when a normal reader loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def hostile(mark: Path) -> list[bytes]:
    """Programs that call functions by every opcode that can."""
    command = f"touch {mark}".encode()
    return [
        pickle.dumps(Evil(mark)),
        b"cos\nsystem\n(S'" + command + b"'\ntR.",
        b"(S'" + command + b"'\nios\nsystem\n.",
        b"(cos\nsystem\nS'" + command + b"'\no.",
        b"cbuiltins\neval\n(S'open(\"" + str(mark).encode() + b'", "w")\'\ntR.',
        b"cbuiltins\ngetattr\n(cos\n__dict__\nS'system'\ntR(S'" + command + b"'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(command)]) + command + b"\x85R.",
    ]


def test_hostile_pickles_are_real(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    pickle.loads(hostile(mark)[0])
    assert mark.exists()


@pytest.mark.parametrize("number", range(7))
def test_hostile_pickle_runs_nothing(tmp_path: Path, number: int) -> None:
    mark, path = tmp_path / "executed", tmp_path / "x.pkl"
    path.write_bytes(hostile(mark)[number])
    assert isinstance(load_pickle(path), StandIn)
    assert not mark.exists()


def test_pickle_cannot_demand_memory(tmp_path: Path) -> None:
    """The normal reader makes room for as many objects as the number says: 512 MiB here, 64 GiB
    with a larger one.
    """
    (tmp_path / "x.pkl").write_bytes(b"\x80\x03Nr\x00\x00\x00\x02.")
    tracemalloc.start()
    try:
        assert load_pickle(tmp_path / "x.pkl") is None
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
