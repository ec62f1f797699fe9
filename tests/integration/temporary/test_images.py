"""Screenshots handed over in memory: a file for as long as an observation holds it, and records
like any other.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from prill.errors import InputError
from prill.evaluators.baselines import SelfReport
from prill.evaluators.scoring.scorer import verdict_key
from prill.io.images import open_checked
from prill.io.store import iter_trajectories, write_trajectories
from prill.types import Action, Observation, Step, Task, Trajectory


def png(color: str = "red", format: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 6), color).save(out, format)
    return out.getvalue()


def path_of(observation: Observation) -> Path:
    assert type(observation.screenshot) is str
    return Path(observation.screenshot)


def pixel(observation: Observation) -> object:
    return open_checked(str(observation.screenshot)).getpixel((0, 0))


def in_other_process(observation: Observation) -> tuple[object, str]:
    return pixel(observation), path_of(observation).name


@pytest.mark.parametrize(
    ("format", "ending"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp"), ("GIF", ".gif")]
)
def test_bytes_are_kept_as_they_are(format: str, ending: str) -> None:
    observation = Observation(png(format=format))
    assert path_of(observation).read_bytes() == png(format=format)
    assert path_of(observation).suffix == ending


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "HSV"])
def test_a_pil_image_of_any_mode_is_kept(mode: str) -> None:
    observation = Observation(
        Image.new("RGB", (8, 6), "white").convert("L").convert(mode if mode != "HSV" else "L")
    )
    assert open_checked(str(observation.screenshot)).size == (8, 6)


@pytest.mark.parametrize("wrong", [3, [b"x"], memoryview(b"x"), object()])
def test_anything_else_is_a_clear_error(wrong: object) -> None:
    with pytest.raises(
        TypeError, match="a path, the bytes of an encoded image or a PIL image, not "
    ):
        Observation(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("data", "problem"), [(b"", "is empty"), (b"no image", "is not an image")])
def test_bytes_that_are_no_image_fail_in_use(data: bytes, problem: str) -> None:
    observation = Observation(data)
    with pytest.raises(InputError, match=problem):
        open_checked(str(observation.screenshot))


def test_the_file_goes_with_its_last_holder() -> None:
    first = Observation(png("green"))
    path = path_of(first)
    holders = [
        replace(first, text="x"),
        Observation(first.screenshot),
        copy.copy(first),
        copy.deepcopy(first),
    ]
    holders += [pickle.loads(pickle.dumps(first))]
    assert {path_of(holder) for holder in holders} == {path}
    del first
    while holders:
        gc.collect()
        assert path.read_bytes() == png("green")
        holders.pop()
    gc.collect()
    assert not path.parent.exists()


def test_a_trajectory_keeps_its_images() -> None:
    def played() -> Trajectory:
        steps = (Step(Observation(png("navy")), Action("click")),)
        return Trajectory(id="a", task=Task(goal="g"), steps=steps, final=Observation(png("teal")))

    trajectory = replace(played(), answer="done")
    gc.collect()
    assert [path_of(state).exists() for state in trajectory.observations] == [True, True]


def test_json_holds_the_path_alone() -> None:
    observation = Observation(png(), text="t")
    record = {"screenshot": str(path_of(observation)), "text": "t", "url": None, "caption": None}
    assert (
        msgspec.to_builtins(observation)
        == msgspec.json.decode(msgspec.json.encode(observation))
        == record
    )
    assert msgspec.json.decode(msgspec.json.encode(observation), type=Observation) == observation
    assert pickle.loads(pickle.dumps(msgspec.convert(record, Observation))) == observation


def test_the_key_goes_by_the_image_alone(tmp_path: Path) -> None:
    def key(trajectory: Trajectory) -> str:
        return verdict_key(
            SelfReport().info, trajectory, [str(o.screenshot) for o in trajectory.observations]
        )

    def trajectory(color: str) -> Trajectory:
        return Trajectory(id="a", task=Task(goal="g"), final=Observation(png(color)))

    keys = [key(trajectory(color)) for color in ("red", "blue", "red")]
    assert (keys[0] == keys[2], keys[0] == keys[1]) == (True, False)
    write_trajectories(tmp_path / "t.jsonl", [trajectory("red")])
    (written,) = iter_trajectories(tmp_path / "t.jsonl")
    assert isinstance(written, Trajectory)
    assert key(written) == keys[0], "a run into the same verdict file goes on"


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_another_process_finds_the_image(method: str) -> None:
    observation = Observation(png("blue"))
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as pool:
        assert pool.submit(in_other_process, observation).result() == (
            (0, 0, 255),
            path_of(observation).name,
        )
    assert path_of(observation).exists()


def test_a_child_leaves_its_parents_files() -> None:
    observation = Observation(png("pink"))
    path = path_of(observation)
    if (child := os.fork()) == 0:
        del observation
        gc.collect()
        os._exit(0 if path.exists() and path_of(Observation(png("pink"))) != path else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.exists()


PROGRAM = """
    import io, os, sys
    from prill.types import Observation
    from PIL import Image

    observations = [Observation(Image.new("RGB", (4, 4), (i, 0, 0))) for i in range(5)]
    print(os.path.dirname(os.path.dirname(observations[0].screenshot)), flush=True)
    if len(sys.argv) > 1:
        os.kill(os.getpid(), 9)
"""


def test_nothing_is_left_behind_by_processes(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, Path]:
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *words]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, Path(done.stdout.strip())

    code, killed = run("die")
    assert (code, killed.exists()) == (-signal.SIGKILL, True)
    code, ended = run()
    assert (code, ended.exists(), killed.exists()) == (0, False, False)
    assert list(tmp_path.iterdir()) == []
