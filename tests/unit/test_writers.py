"""Trajectory and label files written whole: read back alike, movable with their folder, and never
half there.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import prill
from prill.errors import InputError, UsageError
from prill.io.images import open_checked
from prill.io.store import BadLine, copy_image
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
    items = list(prill.read_trajectories(path))
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


@pytest.mark.parametrize("place", ["", "elsewhere/"])
def test_a_missing_image_is_named_with_the_nearest(place: str, tmp_path: Path) -> None:
    picture(tmp_path / place / "shot-1.png")
    run = trajectory("a", str(tmp_path / place / "shot1.png"))
    said = r"trajectory 'a': final\.screenshot: expected an image file; there is none at '.*shot1\.png'"  # noqa: E501
    with pytest.raises(InputError, match=rf"{said} \(did you mean 'shot-1.png'\?\)"):
        prill.write_trajectories(tmp_path / "t.jsonl", [run])
    assert not (tmp_path / "t.jsonl").exists()


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


def test_an_error_leaves_older_copies(tmp_path: Path) -> None:
    elsewhere = picture(tmp_path / "elsewhere/s.png")
    prill.write_trajectories(tmp_path / "out/t.jsonl", [trajectory("a", elsewhere)])
    before = names(tmp_path)
    with pytest.raises(UsageError, match="duplicate ids"):
        prill.write_trajectories(tmp_path / "out/u.jsonl", [trajectory("a", elsewhere)] * 2)
    assert names(tmp_path) == before


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/t.jsonl"):
        with pytest.raises(UsageError, match=f"{path}: cannot be written: "):
            prill.write_trajectories(path, [trajectory("a")])


def test_a_file_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    prill.write_trajectories(path, [trajectory(str(i)) for i in range(50)])
    kept = (
        item
        for item in prill.read_trajectories(path)
        if isinstance(item, Trajectory) and item.id.endswith("7")
    )
    assert prill.write_trajectories(path, kept) == 5
    assert [item.id for item in read(path)] == ["7", "17", "27", "37", "47"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "data/t.jsonl")
    shot = picture(tmp_path / "data/s.png")
    prill.write_trajectories(tmp_path / "link.jsonl", [trajectory("a", shot)])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert read(tmp_path / "link.jsonl")[0].observations[0].screenshot == shot


def test_equal_records_give_equal_archives(tmp_path: Path) -> None:
    for name in ("a", "b"):
        prill.write_trajectories(tmp_path / name / "t.jsonl.gz", [trajectory("a")])
    assert (tmp_path / "a/t.jsonl.gz").read_bytes() == (tmp_path / "b/t.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a/t.jsonl.gz").read_bytes()).count(b"\n") == 1


def test_a_copy_is_named_by_its_content(tmp_path: Path) -> None:
    one, other = picture(tmp_path / "a.PNG"), picture(tmp_path / "b.png")
    copies = {copy_image(path, tmp_path / "images") for path in (one, other)}
    assert len(copies) == 1
    with pytest.raises(InputError, match="it is not a file"):
        copy_image(str(tmp_path), tmp_path / "images")
    assert names(tmp_path / "images") == [next(iter(copies)).name]
