"""Recordings made to hold a reader up: each costs its own run, in bounded time and memory."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.convert import convert
from prill.datasets.formats import agentlab, aitw, webarena
from prill.datasets.reading.safe_pickle import load_pickle
from prill.errors import InputError
from prill.io.store import BadLine, iter_trajectories
from prill.types import Trajectory
from tests.unit.datasets.formats import test_aitw, test_webarena

# (), ((), ()), (((), ()), ((), ())) …: a hundred of them, each holding the one before twice.
NESTED = b")" + b"2\x86" * 100


@pytest.mark.parametrize(
    "program",
    [
        b"}" + NESTED + b"K\x01s",
        b"}(" + NESTED + b"K\x01u",
        b"(" + NESTED + b"K\x01d",
        b"\x8f(" + NESTED + b"\x90",
        b"(" + NESTED + b"\x91",
    ],
    ids=["setitem", "setitems", "dict", "additems", "frozenset"],
)
def test_nested_keys_are_not_hashed(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + program + b".")
    with pytest.raises(InputError, match="a key is a tuple of tuples"):
        load_pickle(tmp_path / "a.pkl")


def test_flat_keys_are_read(tmp_path: Path) -> None:
    value = {("a", 1): {"b", "c"}, "d": frozenset({1, 2}), 3: {("e",): ((1, 2), (3,))}}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, 4))
    assert load_pickle(tmp_path / "a.pkl") == value


def test_a_small_archive_takes_few_steps(tmp_path: Path) -> None:
    (tmp_path / "a.pkl.gz").write_bytes(gzip.compress(b"\x80\x04(" + b"]" * 10_000_000 + b"l."))
    with pytest.raises(InputError, match="more than 10000 steps"):
        load_pickle(tmp_path / "a.pkl.gz", most_steps=10_000)


def test_numbers_without_end_cost_a_line(tmp_path: Path) -> None:
    test_webarena.render(tmp_path, "1", test_webarena.page("t", "stop []"), task=1)
    log = "2023-08-09 15:22:31,123 - INFO - [Result] (PASS) /x/{}.json\n"
    (tmp_path / "merged_log.txt").write_text(log.format("9" * 5000) + log.format(1))
    assert [
        label.success for label in webarena.load_labels(tmp_path) if not isinstance(label, BadLine)
    ] == [True]


@pytest.mark.parametrize(
    "seed", [10**6000, b"\xff", {"a": object}, (1, 2)], ids=["endless", "bytes", "class", "pair"]
)
def test_an_odd_seed_ends_no_conversion(seed: object, tmp_path: Path) -> None:
    for name, value in (("good", 7), ("odd", seed)):
        folder = tmp_path / "study" / name
        folder.mkdir(parents=True)
        info = {
            "step": 0,
            "obs": {"goal": "Buy tea", "axtree_txt": "tree"},
            "action": "send_msg_to_user('done')",
        }
        (folder / "step_0.pkl.gz").write_bytes(gzip.compress(pickle.dumps(info, 4)))
        (folder / "exp_args.pkl").write_bytes(pickle.dumps({"env_args": {"task_seed": value}}, 4))
    convert(agentlab.load(tmp_path), agentlab.load_labels(tmp_path), tmp_path / "out")
    read = list(iter_trajectories(tmp_path / "out/trajectories.jsonl"))
    assert [
        (item.id, item.metadata.get("seed")) for item in read if isinstance(item, Trajectory)
    ] == [("study/good", 7), ("study/odd", None)]


@pytest.mark.parametrize("shape", [(-2, -4, 3), (2**62, 2, 3), (0, 0, 3), (2, 4, -3)])
def test_impossible_sizes_cost_their_run(shape: tuple[int, int, int], tmp_path: Path) -> None:
    image: dict[str, Any] = dict(
        zip(("image/height", "image/width", "image/channels"), shape, strict=True)
    )
    steps = [
        test_aitw.step("good", 0, 1, 10),
        test_aitw.step("odd", 0, 1, **{"image/encoded": test_aitw.PIXELS, **image}),
    ]
    (tmp_path / "a").write_bytes(test_aitw.tfrecord(*map(test_aitw.example, steps)))
    good, odd = aitw.load(tmp_path / "a", images=tmp_path / "images")
    assert (good.id, isinstance(odd, BadLine)) == ("good", True)


@pytest.mark.parametrize("name", ["image/ui_annotations_positions", "results/yx_touch", "step_id"])
def test_endless_integers_are_no_numbers(name: str) -> None:
    record = test_aitw.step("odd", 0, 1)
    assert aitw.parse_step(record).elements
    odd = [10**400] * len(record[name]) if isinstance(record[name], list) else 10**400
    with pytest.raises(InputError, match=f"{name} contains a value that is not a number"):
        aitw.parse_step({**record, name: odd})
