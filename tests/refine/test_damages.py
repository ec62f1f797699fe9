"""Every file of every kind of run folder, damaged in every way: the same figures, or one error that
names the file.

A damage is done to a copy of a folder, which is then read as its command reads it, in this process.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.captioner.training import TrainingSpec, training_data
from prill.captioner.vision import VLMCaptioner
from prill.episodes.run_folder import RunFolder
from prill.errors import PrillError
from prill.io.checksums import Checksums
from prill.io.store import list_screenshots, read_labels, read_trajectories, write_trajectories
from prill.models.local.weights import check_adapter
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.memory import Exemplar, ExemplarMemory, ExemplarTurn
from prill.refine.export import ExportSpec, export_rows
from prill.refine.filter import filter_steps
from prill.refine.outcomes import read_results
from prill.refine.results import read_study_results, write_results
from prill.refine.training.samples import read_rows
from prill.testing import ScriptedModel
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory, Verdict

from .builders import JUDGE
from .retrying import Written
from .retrying import run as play_retries
from .test_study import FILTERED, SELF_TRAINING, Small
from .test_study import run as play_study

FEWEST = 2000  # damages of all kinds together
FLIPS, CUTS, LINES, SWAPS = 8, 5, 3, 3  # of each file, at most
TRUTHS: dict[str, list[bool | None]] = {
    "a": [False, False, True],
    "b": [True],
    "c": [False] * 4,
    "d": [None] * 4,
}
VERDICTS = {"a": "FFS", "b": "S", "c": "FFFF", "d": "FU"}


@dataclass(frozen=True)
class Kind:
    """A kind of folder: how one is made, and what a command reads from it."""

    make: Callable[[Path], None]
    figures: Callable[[Path], Any]


def episode(folder: Path, id: str, *, error: str | None = None) -> Trajectory:
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number in range(2):
        color = (len(id) * 40 % 256, ord(id[-1]) % 256, number * 200)
        Image.new("RGB", (6, 4), color).save(folder / "images" / f"{id}-{number}.png")
    shots = [str(folder / "images" / f"{id}-{number}.png") for number in range(2)]
    step = Step(
        Observation(screenshot=shots[0], text=f"page of {id}"),
        Action("click", "click [1]", target="[1] link"),
    )
    return Trajectory(
        id=id,
        task=Task(goal="g"),
        steps=(step,),
        final=Observation(screenshot=shots[1]),
        error=error,
    )


def make_recording(folder: Path) -> None:
    with RunFolder(folder) as run:
        for number, id in enumerate(("a", "b", "c", "d")):
            error = "the browser broke" if id == "d" else None
            run.keep(
                episode(folder, id, error=error),
                LabelRecord(id=id, success=number % 2 == 0, source="oracle"),
            )
    with RunFolder(folder, again={"d"}) as run:
        run.keep(episode(folder, "d"), LabelRecord(id="d", success=True, source="oracle"))


def make_killed(folder: Path) -> None:
    """Killed at work: its files may have grown."""
    run = RunFolder(folder)
    for id in ("a", "b", "c"):
        run.keep(episode(folder, id), LabelRecord(id=id, success=True, source="oracle"))
    run.note(episode(folder, "d"))
    super(RunFolder, run).close()


def of_recording(folder: Path) -> Any:
    RunFolder(folder).close()
    played = {item.id: item for item in read_trajectories(folder) if isinstance(item, Trajectory)}
    images = {
        id: [Path(path).read_bytes() for path, _ in list_screenshots(item)]
        for id, item in played.items()
    }
    steps = {id: [step.action for step in item.steps] for id, item in played.items()}
    return (
        images,
        steps,
        {label.id: label.success for label in read_labels(folder / "labels.jsonl")},
    )


def retries(folder: Path) -> Any:
    return asyncio.run(play_retries(folder, TRUTHS, Written(VERDICTS))).tasks


def of_results(folder: Path) -> Any:
    return read_results(folder).tasks


def make_study(folder: Path) -> None:
    play_study(Small(), folder, arms=[SELF_TRAINING, FILTERED])
    write_results(folder)


def of_study_resumed(folder: Path) -> Any:
    make_study(folder)
    return read_study_results(folder)


def make_rows(folder: Path) -> None:
    attempts = [episode(folder.parent / "recorded", id) for id in ("a", "b", "c")]
    verdicts = [Verdict(id=attempt.id, success=True, evaluator=JUDGE) for attempt in attempts]
    export_rows(folder, filter_steps(attempts, verdicts), spec=ExportSpec(copy_images=True))


def of_rows(folder: Path) -> Any:
    rows = read_rows(folder / "sft.jsonl")
    return rows.digest, [
        Path(path).read_bytes() for sample in rows.samples for path in sample.images
    ]


def make_memory(folder: Path) -> None:
    exemplars = [
        Exemplar(name, f"key {name}", name, (ExemplarTurn(f"click {name}", state="<p>"),))
        for name in ("a", "b", "c")
    ]
    asyncio.run(ExemplarMemory(exemplars, embedder=TfidfEmbedder()).save(folder))


def of_memory(folder: Path) -> Any:
    memory = ExemplarMemory.load(folder, TfidfEmbedder())
    return memory.exemplars, memory.hash


def make_captions(folder: Path) -> None:
    """Rows to train a captioner on, of pictures in another folder."""
    pictures = folder.parent / "pictures"
    if not pictures.exists():
        write_trajectories(pictures / "t.jsonl", [episode(pictures, id) for id in ("a", "b", "c")])
    words = "# Page\n" + "- a button with the word Save on it, and a field that is empty\n" * 3
    spec, eyes = (
        TrainingSpec(language="any", near=-1),
        VLMCaptioner(ScriptedModel(lambda messages: words)),
    )
    asyncio.run(training_data([pictures / "t.jsonl"], eyes, folder, spec))


def of_captions(folder: Path) -> Any:
    rows = read_rows(folder / "rows.jsonl")
    return rows.digest, [
        Path(path).read_bytes() for sample in rows.samples for path in sample.images
    ]


def of_captions_resumed(folder: Path) -> Any:
    make_captions(folder)
    return of_captions(folder)


def make_adapter(folder: Path) -> None:
    """As a training leaves it."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}\n')
    (folder / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 4)
    Checksums(folder).note("adapter_config.json", "adapter_model.safetensors")


def of_adapter(folder: Path) -> Any:
    check_adapter(folder)
    return {path.name: path.read_bytes() for path in folder.glob("adapter_*")}


KINDS = {
    "recording": Kind(make_recording, of_recording),
    "killed recording": Kind(make_killed, of_recording),
    "retries, taken up": Kind(retries, retries),
    "retries, read": Kind(retries, of_results),
    "study, its tables": Kind(make_study, read_study_results),
    "study, taken up": Kind(make_study, of_study_resumed),
    "rows": Kind(make_rows, of_rows),
    "exemplars": Kind(make_memory, of_memory),
    "captions, learnt from": Kind(make_captions, of_captions),
    "captions, taken up": Kind(make_captions, of_captions_resumed),
    "adapter": Kind(make_adapter, of_adapter),
}


@cache
def made(root: Path, make: Callable[[Path], None]) -> Path:
    """Each folder is made once."""
    folder = root / str(len(list(root.iterdir()))) / "run"
    folder.parent.mkdir()
    make(folder)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folders")


def files_of(folder: Path) -> list[str]:
    """Locks hold nothing."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(name.as_posix() for name in names if not name.name.startswith("."))


def spread(size: int, most: int) -> list[int]:
    """Places in a file, over all of it."""
    return sorted({round(i * (size - 1) / max(1, most - 1)) for i in range(most)}) if size else []


def contents(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What a file may hold after it was damaged."""
    for at in spread(len(data), FLIPS):
        yield f"bit flipped at {at}", data[:at] + bytes([data[at] ^ 1 << at % 7]) + data[at + 1 :]
    for at in spread(len(data), CUTS)[1:]:
        yield f"cut at {at}", data[:at]
    yield "emptied", b""
    lines = data.splitlines(keepends=True)
    for i in spread(len(lines), LINES):
        yield f"line {i} deleted", b"".join(lines[:i] + lines[i + 1 :])
        yield f"line {i} duplicated", b"".join(lines[: i + 1] + lines[i:])
    if len(lines) > 1:
        yield "lines reversed", b"".join(reversed(lines))
        yield "first two lines swapped", b"".join([lines[1], lines[0], *lines[2:]])
        yield "last line moved to the front", b"".join([lines[-1], *lines[:-1]])


def damages(folder: Path) -> Iterator[tuple[str, tuple[str, ...], Callable[[Path], object]]]:
    """What is done, to which files, and a function that does it to a copy of the folder."""
    names = files_of(folder)
    for number, name in enumerate(names):
        for what, data in contents((folder / name).read_bytes()):
            if data != (folder / name).read_bytes():
                yield (
                    f"{name}: {what}",
                    (name,),
                    lambda copy, name=name, data=data: (copy / name).write_bytes(data),
                )
        yield f"{name}: deleted", (name,), lambda copy, name=name: (copy / name).unlink()
        yield (
            f"{name}: a link",
            (name,),
            lambda copy, name=name: link(copy / name, copy.with_name("elsewhere")),
        )
        yield f"{name}: a dangling link", (name,), lambda copy, name=name: link(copy / name, None)
        yield (
            f"{name}: a folder",
            (name,),
            lambda copy, name=name: ((copy / name).unlink(), (copy / name).mkdir()),
        )
        alike = [other for other in names if Path(other).name == Path(name).name and other > name]
        others = [*alike, *(names[(number + step) % len(names)] for step in range(1, SWAPS + 1))]
        for other in dict.fromkeys(others):
            if (folder / other).read_bytes() != (folder / name).read_bytes():
                swapped = (name, other)
                yield (
                    f"{name} and {other} swapped",
                    swapped,
                    lambda copy, pair=swapped: swap(copy / pair[0], copy / pair[1]),
                )


def link(path: Path, target: Path | None) -> None:
    if target is not None:
        shutil.copy(path, target)
    path.unlink()
    path.symlink_to(target or path.with_name("nowhere"))


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def read(kind: Kind, folder: Path) -> tuple[Any, str]:
    """The figures, and the error where there are none."""
    try:
        return kind.figures(folder), ""
    except PrillError as error:
        return None, str(error)


def wrong(kind: Kind, folder: Path, expected: Any, scratch: Path) -> Iterator[str]:
    """The damages that neither leave the figures nor name the file."""
    for number, (what, names, damage) in enumerate(damages(folder)):
        copy = scratch / str(number) / "run"
        shutil.copytree(folder, copy)
        damage(copy)
        figures, error = read(kind, copy)
        if error and not any(Path(name).name in error for name in names):
            yield f"{what}: names none of its files: {error}"
        elif not error and figures != expected:
            yield f"{what}: other figures, and no error"
        shutil.rmtree(copy.parent)


@pytest.mark.parametrize("name", KINDS)
def test_no_damage_changes_a_figure_unnoticed(name: str, root: Path, tmp_path: Path) -> None:
    kind = KINDS[name]
    folder = made(root, kind.make)
    undamaged = shutil.copytree(folder, tmp_path / "undamaged" / "run")
    expected, error = read(kind, undamaged)
    assert not error
    found = list(wrong(kind, folder, expected, tmp_path))
    assert not found, "\n".join([f"{len(found)} damages", *found])


def test_there_are_enough_damages(root: Path) -> None:
    assert sum(sum(1 for _ in damages(made(root, kind.make))) for kind in KINDS.values()) >= FEWEST
