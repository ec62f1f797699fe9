"""Logs that Inspect 0.3.285 and 0.3.75 (`old-…`) wrote, by
tests/support/datasets/written/make_inspect.py.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.inspect import load, load_labels, recognise
from prill.datasets.reading.archives import Archive
from prill.datasets.reading.sources import Source
from prill.errors import InputError, MissingExtraError
from prill.io.store import BadLine, encode
from prill.types import LabelRecord
from tests.support.datasets.written.reading import WRITTEN, Row, all_read, one, rows

FILES = WRITTEN / "inspect"
LONG: list[Row] = [
    ("click", None, None, (0.25, 0.25)),
    ("type", "green tea", None, None),
    ("press", "Return", None, None),
    ("scroll", "down", None, (0.5, 0.5)),
    ("click", None, None, (0.75, 0.75)),
    ("type", "2", None, None),
    ("answer", "Bought green tea.", None, None),
]


def archive(path: Path, samples: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("header.json", json.dumps({"eval": {"model": "m", "task": "t"}}))
        for name, sample in samples.items():
            file.writestr(name, sample if isinstance(sample, str | bytes) else json.dumps(sample))
    return path


def sample(**more: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "epoch": 1,
        "input": "Go",
        "messages": [{"role": "user", "content": "Go"}],
        **more,
    }


@pytest.fixture
def zstd() -> None:
    """Of most logs; Python knows it from 3.14 on."""
    if not hasattr(zipfile, "ZIP_ZSTANDARD"):
        pytest.importorskip(
            "zstandard", reason="zstandard is not installed: pip install 'prill[inspect]'"
        )


@pytest.mark.parametrize("name", ["long", "chunked-long", "old-long"])
def test_actions_are_read(name: str, request: pytest.FixtureRequest) -> None:
    if not name.startswith("old"):
        request.getfixturevalue("zstd")
    run = one(load(FILES / f"{name}.eval"))
    assert rows(run) == LONG
    assert (run.id, run.task.id, run.answer) == (f"{name}/long/1", "shop/long", "Bought green tea.")
    assert run.task.goal == "Buy green tea " + "please " * 29 + "please", "an attachment"
    assert (run.agent, run.task.platform, run.error) == ("mockllm/model", "desktop", None)


def test_a_look_at_the_screen_is_no_step(tmp_path: Path) -> None:
    first, *others = one(load(FILES / "old-long.eval", images=tmp_path)).steps
    assert first.thought == "I know nothing yet\n\nLook first\n\nClick buy"
    assert (
        first.observation.screenshot
        and first.observation.text
        and first.observation.text.startswith("the screen")
    )
    assert [bool(step.observation.screenshot) for step in others] == [
        True,
        True,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.usefixtures("zstd")
def test_every_way_of_packing_says_the_same(tmp_path: Path) -> None:
    runs = all_read(load(FILES, images=tmp_path))
    for name in ("long/long/1", "cut/cut off/1"):
        plain, chunked = runs[name], runs[f"chunked-{name}"]
        assert (plain.steps, plain.final, plain.metadata) == (
            chunked.steps,
            chunked.final,
            chunked.metadata,
        )
    assert runs["short/short/2"].answer == "It is 4."


def test_a_json_log_is_read() -> None:
    runs = all_read(load(FILES / "short.json"))
    assert {id: run.answer for id, run in runs.items()} == {
        "short/short/1": "It is 4.",
        "short/short/2": "It is 4.",
    }
    assert recognise(Source(FILES / "short.json")) and recognise(Source(FILES / "old-long.eval"))


def test_what_broke_off_says_why() -> None:
    run = one(load(FILES / "old-broken.eval"))
    assert (run.error, run.id) == ("RuntimeError('the environment broke')", "old-broken/broken/1/1")
    labels = list(load_labels(FILES / "old-broken.eval"))
    assert labels == [], "what was not scored has no label"


@pytest.mark.parametrize("name", ["old-long.eval", "short.json"])
def test_scores_and_targets_are_labels_only(name: str) -> None:
    labels = [label for label in load_labels(FILES / name) if isinstance(label, LabelRecord)]
    assert {label.source for label in labels} == {"includes", "fraction"}, (
        "not a number is no label"
    )
    assert all(label.success is False and "TARGET" in (label.note or "") for label in labels)
    assert any(
        (label.note or "").startswith("score 0.25; EXPLANATION of a quarter") for label in labels
    )
    for run in load(FILES / name):
        assert not isinstance(run, BadLine)
        for word in (b"TARGET", b"EXPLANATION", b"0.25,", b"easy", b"includes"):
            assert word not in encode(run).replace(b"[0.25,0.25]", b"")


@pytest.mark.parametrize(
    ("value", "success"),
    [
        ("C", True),
        ("I", False),
        ("N", False),
        ("P", None),
        (1, True),
        (0.5, True),
        (0.2, False),
        (7, None),
        (True, True),
        ("x", None),
    ],
)
def test_grades_become_success(value: object, success: bool | None, tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.eval", {"samples/a_epoch_1.json": sample(scores={"s": {"value": value}})}
    )
    assert [label.success for label in load_labels(path) if isinstance(label, LabelRecord)] == [
        success
    ]


def test_scores_of_several_values_are_sources(tmp_path: Path) -> None:
    scores = {"s": {"value": {"x": "C", "y": 0}}}
    path = archive(tmp_path / "a.eval", {"samples/a_epoch_1.json": sample(scores=scores)})
    assert [
        (label.source, label.success)
        for label in load_labels(path)
        if isinstance(label, LabelRecord)
    ] == [("s/x", True), ("s/y", False)]


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.eval",
        {"samples/a_epoch_1.json": b" " * (80 * 2**20), "samples/b_epoch_1.json": sample()},
    )
    bomb, after = load(path)
    assert isinstance(bomb, BadLine) and "unpacks to more than" in bomb.problem
    assert isinstance(after, BadLine), "nothing more is read of such an archive"
    with Archive(path) as opened, pytest.raises(InputError, match="unpacks to more than 64 MiB"):
        opened.read("samples/a_epoch_1.json")


def test_zstd_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        pytest.skip("Python knows zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match="zstandard"):
        list(load(FILES / "long.eval"))
