"""Every format's runs are the same after they were written as prill's own and read again: short,
long and broken ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from prill.datasets.convert import convert
from prill.datasets.formats import open_recording
from prill.errors import MissingExtraError, PrillError
from prill.io.store import BadLine, encode, iter_trajectories, with_screenshots
from prill.types import Trajectory
from tests.integration.fuzz.test_formats import SAMPLES
from tests.support.datasets.written.reading import WRITTEN

# By the folder of the logs that the packages themselves wrote.
FORMATS = {
    "agents_sdk": "agents-sdk", "anthropic": "messages", "browser_use": "browser-use",
    "inspect": "inspect", "langsmith": "langsmith", "otel": "opentelemetry",
    "playwright": "playwright",
}  # fmt: skip
FILES = [
    path for folder in FORMATS for path in sorted((WRITTEN / folder).iterdir()) if path.is_file()
]


def by_content(runs: Iterable[Trajectory | BadLine]) -> dict[str, bytes]:
    """The lines of the runs with the hashes of their pictures, which may be gone with the next run.
    A picture that a sample only names is made.
    """

    def content(path: str, at: str) -> str:
        if not Path(path).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(path.encode())
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    lines: dict[str, bytes] = {}
    for run in runs:
        if isinstance(run, Trajectory):
            lines.setdefault(run.id, encode(with_screenshots(run, content)))
    return lines


def expect_the_same(format: str, source: Path, out: Path) -> dict[str, bytes]:
    """Converts a recording, and returns its runs, which are the same when they are read again."""
    read = by_content(open_recording(format, source, goal="Go")[0])
    report = convert(open_recording(format, source, goal="Go")[0], (), out)
    assert report.trajectories == len(read)
    file = out / "trajectories.jsonl"
    assert by_content(iter_trajectories(file) if read else ()) == read
    return read


@pytest.mark.parametrize("format", SAMPLES)
def test_runs_of_every_format(format: str, tmp_path: Path) -> None:
    assert expect_the_same(format, SAMPLES[format](tmp_path / "in"), tmp_path / "out")


@pytest.mark.parametrize("format", SAMPLES)
def test_what_is_whole_when_a_file_is_cut(format: str, tmp_path: Path) -> None:
    root = SAMPLES[format](tmp_path / "in")
    files = sorted(path for path in root.rglob("*") if path.is_file()) or [root]
    for number, path in enumerate(files):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        try:
            expect_the_same(format, root, tmp_path / f"out{number}")
        except PrillError as error:
            assert str(error)
        finally:
            path.write_bytes(data)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_logs_of_the_packages(path: Path, tmp_path: Path) -> None:
    try:
        runs = expect_the_same(FORMATS[path.parent.name], path, tmp_path / "out")
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert runs


def test_packages_wrote_short_long_and_broken_logs() -> None:
    for folder in FORMATS:
        names = " ".join(path.name for path in FILES if path.parent.name == folder)
        assert all(kind in names for kind in ("short", "long", "broken")), folder
