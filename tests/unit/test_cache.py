"""The on-disk cache and the sharing of equal work."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from prill.errors import UsageError
from prill.io.cache import DiskCache, cache_folder
from prill.models.in_flight import InFlight


def test_caches_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/c.sqlite"
    DiskCache(path).put("k", b"\0v")
    assert DiskCache(path).get("k", bytes) == b"\0v"
    assert DiskCache(path).get("other", bytes) is None


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new/c.sqlite"
    cache = DiskCache(path)
    cache.put("k", b"what a page said")
    assert path.parent.stat().st_mode & 0o077 == 0
    assert [file.name for file in path.parent.iterdir() if file.stat().st_mode & 0o077] == []


def test_foreign_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_text("my notes, which are long enough to be taken for a header of something")
    with pytest.raises(UsageError, match=r"c\.sqlite cannot be used"):
        DiskCache(path).get("k", bytes)
    assert path.read_text().startswith("my notes")


def test_damaged_values_are_made_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c.sqlite")
    cache.put("json", b'{"a": ')
    cache.put("latin", b"\xff")
    assert cache.get("json", msgspec.json.decode) is cache.get("latin", bytes.decode) is None
    cache.put("good", b"caption")
    with closing(sqlite3.connect(tmp_path / "c.sqlite", isolation_level=None)) as plain:
        for value in ("not bytes", 5, None):
            plain.execute("UPDATE entries SET value = ?, crc = NULL WHERE key = 'json'", (value,))
            assert cache.get("json", bytes) is None
    assert cache.get("good", bytes.decode) == "caption"


def test_changed_values_are_made_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c.sqlite")
    cache.put("k", b"success")
    cache.close()
    with closing(sqlite3.connect(tmp_path / "c.sqlite", isolation_level=None)) as plain:
        plain.execute("UPDATE entries SET value = ?", (b"succesr",))
    assert cache.get("k", bytes) is None


def test_two_writers_work_side_by_side(tmp_path: Path) -> None:
    one, two = DiskCache(tmp_path / "c.sqlite"), DiskCache(tmp_path / "c.sqlite")
    for i in range(20):
        (one, two)[i % 2].put(str(i), b"x")
    assert all((two, one)[i % 2].get(str(i), bytes) == b"x" for i in range(20))
    with sqlite3.connect(tmp_path / "c.sqlite") as plain:
        assert plain.execute("SELECT count(*) FROM entries").fetchone() == (20,)
    plain.close()


def test_folder_follows_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PRILL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "prill"
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


async def test_equal_work_in_flight_runs_once() -> None:
    shared, done = InFlight(), []

    async def work() -> int:
        await asyncio.sleep(0.01)
        done.append(1)
        if len(done) == 2:
            raise ValueError("broken")
        return 7

    assert await asyncio.gather(*(shared.once("k", work) for _ in range(4))) == [7] * 4
    errors = await asyncio.gather(
        *(shared.once("k", work) for _ in range(3)), return_exceptions=True
    )
    assert [type(error) for error in errors] == [ValueError] * 3
    assert len(done) == 2
