"""The caption cache: one reading per image and captioner, whoever asks, from wherever."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from prill.captioner.cache import CachedCaptioner
from prill.errors import InputError, NoEvidenceError
from prill.types import Observation


@dataclass
class Counting:
    """A captioner that says how often it was asked, and fails where it is told to."""

    name: str = "counting-1"
    asked: list[str] = field(default_factory=list)
    wait: float = 0.05
    fail: int = 0

    async def __call__(self, observation: Observation) -> str:
        if observation.screenshot is None:
            raise NoEvidenceError("no screenshot")
        self.asked.append(observation.screenshot)
        await asyncio.sleep(self.wait)
        if len(self.asked) <= self.fail:
            raise InputError("unreadable")
        return f"seen: {Path(observation.screenshot).read_bytes().decode()}"


@pytest.fixture
def shot(tmp_path: Path) -> Observation:
    (tmp_path / "a.png").write_bytes(b"pixels")
    return Observation(screenshot=str(tmp_path / "a.png"))


async def test_image_captioned_once_by_content(tmp_path: Path, shot: Observation) -> None:
    (tmp_path / "copy.png").write_bytes(b"pixels")
    (tmp_path / "other.png").write_bytes(b"other")
    inner = Counting()
    for _ in range(2):
        captioner = CachedCaptioner(inner, tmp_path / "cache.sqlite")
        assert await captioner(shot) == "seen: pixels"
        assert await captioner(Observation(screenshot=str(tmp_path / "copy.png"))) == "seen: pixels"
        assert await captioner(Observation(screenshot=str(tmp_path / "other.png"))) == "seen: other"
    assert len(inner.asked) == 2


async def test_changed_image_is_captioned_again(tmp_path: Path, shot: Observation) -> None:
    old, new = Counting(), Counting("counting-2")
    await CachedCaptioner(old, tmp_path / "cache.sqlite")(shot)
    await CachedCaptioner(new, tmp_path / "cache.sqlite")(shot)
    (tmp_path / "a.png").write_bytes(b"changed")
    assert await CachedCaptioner(old, tmp_path / "cache.sqlite")(shot) == "seen: changed"
    assert (len(old.asked), len(new.asked)) == (2, 1)
    assert CachedCaptioner(new).name == "counting-2"


def test_event_loops_share_the_file(tmp_path: Path, shot: Observation) -> None:
    inner = Counting()
    captioner = CachedCaptioner(inner, tmp_path / "cache.sqlite")
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(asyncio.run(captioner(shot))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = len(inner.asked)
    assert texts == ["seen: pixels"] * 4
    assert asyncio.run(captioner(shot)) == "seen: pixels"
    assert len(inner.asked) == made


async def test_one_who_gives_up_stops_nobody(tmp_path: Path, shot: Observation) -> None:
    inner = Counting()
    captioner = CachedCaptioner(inner, tmp_path / "cache.sqlite")
    asking = [asyncio.create_task(captioner(shot))]
    while not inner.asked:
        await asyncio.sleep(0.001)
    asking += [asyncio.create_task(captioner(shot)) for _ in range(4)]
    await asyncio.sleep(0)
    asking[0].cancel()
    asking[1].cancel()
    assert await asyncio.gather(*asking[2:]) == ["seen: pixels"] * 3
    assert len(inner.asked) == 2
    assert all(
        isinstance(end, asyncio.CancelledError)
        for end in await asyncio.gather(*asking[:2], return_exceptions=True)
    )
    assert await captioner(shot) == "seen: pixels"


WRITER = """
import asyncio, sys
from pathlib import Path
from prill.captioner.cache import CachedCaptioner
from prill.types import Observation

class Reading:
    name = "counting-1"
    async def __call__(self, observation):
        return "seen: " + Path(observation.screenshot).read_text()

async def write(cache, images):
    for image in images:
        await CachedCaptioner(Reading(), Path(cache))(Observation(screenshot=image))

asyncio.run(write(sys.argv[1], sys.argv[2:]))
"""


async def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    images = [tmp_path / f"{i}.png" for i in range(40)]
    for i, image in enumerate(images):
        image.write_bytes(f"{i}".encode())
    command = [sys.executable, "-c", WRITER, str(tmp_path / "cache.sqlite")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # Every image goes to two of the processes, so that the same row is written twice as well.
    writers = [
        await asyncio.create_subprocess_exec(
            *command, *map(str, images[i % 2 :: 2]), env=environment
        )
        for i in range(4)
    ]
    assert [await writer.wait() for writer in writers] == [0] * 4
    inner = Counting()
    captioner = CachedCaptioner(inner, tmp_path / "cache.sqlite")
    assert [await captioner(Observation(screenshot=str(image))) for image in images] == [
        f"seen: {i}" for i in range(40)
    ]
    assert inner.asked == []
