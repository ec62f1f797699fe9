"""Trajectory and label files written whole: read back alike, movable with their folder, and never
half there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import prill
from prill.errors import InputError, UsageError
from prill.io.images import open_checked
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Step, StepLabel, Task, Trajectory


def picture(path: Path, color: str = "red") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), color).save(path)
    return str(path)


def trajectory(
    id: str, *screenshots: str | Image.Image, earlier: tuple[Trajectory, ...] = ()
) -> Trajectory:
    states = [Observation(screenshot) for screenshot in screenshots]
    steps = tuple(Step(state, Action("click", point=(0.5, 0.25)), "so") for state in states[:-1])
    final = states[-1] if states else None
    return Trajectory(
        id=id, task=Task(goal="g", earlier=earlier), steps=steps, final=final, metadata={"seed": 1}
    )


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def read(path: Path) -> list[Trajectory]:
    items = prill.read_trajectories(path)
    assert all(isinstance(item, Trajectory) for item in items), items
    return [item for item in items if isinstance(item, Trajectory)]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_trajectories_are_read_back_alike(name: str, tmp_path: Path) -> None:
    written = [trajectory("a", picture(tmp_path / "shots/0.png")), trajectory("b")]
    assert prill.write_trajectories(tmp_path / name, written) == 2
    assert read(tmp_path / name) == written
    assert names(tmp_path) == ["shots/0.png", name]
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") is name.endswith(".gz")


@pytest.mark.parametrize("name", ["l.jsonl", "l.jsonl.gz"])
def test_labels_are_read_back_alike(name: str, tmp_path: Path) -> None:
    labels = [
        LabelRecord(id="a", success=True, annotator="ada", steps=(StepLabel(0, "reached"),)),
        LabelRecord(id="a", success=False, annotator="bob", note="no"),
        LabelRecord(id="a", success=None, source="oracle"),
    ]
    assert prill.write_labels(tmp_path / "deep" / name, labels) == 3
    assert list(prill.read_labels(tmp_path / "deep" / name)) == labels


def test_screenshots_move_with_the_folder(tmp_path: Path) -> None:
    elsewhere = picture(tmp_path / "elsewhere/S.PNG", "blue")
    inside = picture(tmp_path / "out/own/0.png", "lime")
    turn = trajectory("e", elsewhere)
    first = trajectory("a", elsewhere, Image.new("RGB", (8, 6), "red"), inside, earlier=(turn,))
    prill.write_trajectories(tmp_path / "out/t.jsonl", [first, trajectory("b", elsewhere)])
    copies = {path.suffix for path in (tmp_path / "out/images").iterdir()}
    assert (copies, len(names(tmp_path / "out"))) == ({".png"}, 4), "each image once"
    shutil.move(tmp_path / "out", tmp_path / "moved")
    shutil.rmtree(tmp_path / "elsewhere")
    a, b = read(tmp_path / "moved/t.jsonl")
    states = [*a.observations, *a.task.earlier[0].observations, *b.observations]
    colors = [open_checked(str(state.screenshot)).getpixel((0, 0)) for state in states]
    assert colors == [(0, 0, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 255)]


def test_images_in_memory_are_always_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = trajectory("a", Image.new("RGB", (8, 6), "red"))
    above = Path(str(attempt.observations[0].screenshot)).parents[1]
    # the temporary file lies below, but will not stay
    prill.write_trajectories(above / "t.jsonl", [attempt])
    del attempt
    (state,) = read(above / "t.jsonl")[0].observations
    assert open_checked(str(state.screenshot)).size == (8, 6)
    shutil.rmtree(above / "images")
    (above / "t.jsonl").unlink()


def test_ids_that_come_again_are_named(tmp_path: Path) -> None:
    elsewhere = picture(tmp_path / "elsewhere/s.png")
    items = [trajectory(id, elsewhere) for id in ("a", "b", "b", "c", "a", "b")]
    with pytest.raises(UsageError, match=r"duplicate ids: 'b', 'a'$"):
        prill.write_trajectories(tmp_path / "out/t.jsonl", items)
    assert names(tmp_path) == ["elsewhere/s.png"]
    twice = [LabelRecord(id=str(i % 12), success=True) for i in range(24)]
    with pytest.raises(UsageError, match=r"'9' and 2 more$"):
        prill.write_labels(tmp_path / "l.jsonl", twice)
    assert names(tmp_path) == ["elsewhere/s.png"]


def unreadable() -> Iterator[Trajectory]:
    yield trajectory("a")
    raise FileNotFoundError("the caller's own")


LOST = BadLine("x", "other.jsonl:7", "missing field `id`", b"{}")
WRONG = [
    (
        [trajectory("a", "/nowhere/x.png")],
        InputError,
        "trajectory 'a': final.screenshot: expected an image file; there is none at "
        "'/nowhere/x.png'",
    ),
    ([LOST], InputError, "a broken line cannot be written: other.jsonl:7: missing field"),
    ([trajectory("")], InputError, "trajectory '': id: expected non-empty text"),
    (
        [trajectory("ok"), replace(trajectory("bad"), answer="\ud800")],
        InputError,
        "'bad' cannot be written: ",
    ),
    (
        [replace(trajectory("bad"), metadata={"x": object()})],
        InputError,
        "trajectory 'bad': metadata.x: a value of type object cannot be written as JSON",
    ),
    (unreadable(), FileNotFoundError, "the caller's own"),
]


BEFORE = '{"id": "before", "task": {"goal": "g"}}\n'


@pytest.mark.parametrize(("items", "error", "message"), WRONG, ids=range(len(WRONG)))
def test_an_error_leaves_all_as_it_was(
    items: list[Trajectory], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/t.jsonl").write_text(BEFORE)
    first = trajectory("first", picture(tmp_path / "elsewhere/s.png"))
    with pytest.raises(error, match=message):
        prill.write_trajectories(
            tmp_path / "out/t.jsonl", iter([first, *items]) if isinstance(items, list) else items
        )
    assert names(tmp_path) == ["elsewhere/s.png", "out/t.jsonl"]
    assert not (tmp_path / "out/images").exists()
    assert (tmp_path / "out/t.jsonl").read_text() == BEFORE


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/t.jsonl"):
        with pytest.raises(UsageError, match=f"{path}: cannot be written: "):
            prill.write_trajectories(path, [trajectory("a")])
