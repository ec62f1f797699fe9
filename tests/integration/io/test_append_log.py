"""The log of appended records by itself: killed anywhere, on a full disk, with two writers, and
with anything at its end.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import pytest

from prill.errors import UsageError
from prill.io.append_log import AppendLog
from prill.io.store import encode
from tests.support.paths import ROOT

# A writer: appends records, makes the file again now and then, and says what is done, until it is
# killed.
WRITER = """
import sys
from tests.integration.io.test_append_log import Note, opened
from prill.io.store import encode

path, first, report = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "ab", buffering=0)
held = {}
log = opened(path, lambda note, start: held.__setitem__(note.id, note))
for number in range(first, first + 100_000):
    log.append(Note(str(number), "x" * (number * 7919 % 9000)))
    report.write(b"%d\\n" % number)
    if number % 5 == 4:  # every tenth stays
        log.replace(line for _, line in log.lines() if int(line.split(b'"')[3]) % 10 == 0)
"""


@dataclass(frozen=True, slots=True)
class Note:
    id: str
    text: str = ""


def opened(
    path: Path | str, known: object = lambda note, start: None, **options: object
) -> AppendLog[Note]:
    return AppendLog(path, Note, known, what="note", **options)  # type: ignore[arg-type]


def there(path: Path) -> list[str]:
    ids: list[str] = []
    opened(path, lambda note, start: ids.append(note.id)).close()
    return ids


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file grows beyond `room` bytes: what comes then is cut there, as on a disk that is
    full.
    """
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def killed(path: Path, first: int, report: Path, after: int, pause: float) -> int:
    """Runs a writer, kills it a moment after so many records, and gives the number of the last
    record that it finished.
    """
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(report)]
    before = report.stat().st_size
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as writer:
        deadline = time.monotonic() + 60
        while (
            report.stat().st_size - before < after * len(str(first)) and time.monotonic() < deadline
        ):
            assert writer.poll() is None
            time.sleep(0.001)
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    return int(report.read_bytes().split()[-1])


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_it_goes_on(tmp_path: Path, seed: int) -> None:
    path, report, random, first = tmp_path / "n.jsonl", tmp_path / "done", Random(seed), 10_000
    report.touch()
    for _ in range(4):
        last = killed(path, first, report, random.randrange(1, 60), random.random() / 100)
        ids = list(map(int, there(path)))
        assert len(set(ids)) == len(ids)
        # What was finished is there, but for what a replacement took out; the one under way may be.
        kept = {number for number in range(10_000, last + 1) if number % 10 == 0}
        assert kept <= set(ids) and max(ids) in (last, last + 1, last - last % 10)
        first = last + 1 + (last + 1 in ids)
    assert {name.name for name in tmp_path.iterdir()} == {"n.jsonl", "done"}, (
        "nothing is left of files under way"
    )


def test_a_killed_writer_holds_no_lock(tmp_path: Path) -> None:
    path, report = tmp_path / "n.jsonl", tmp_path / "done"
    report.touch()
    killed(path, 10_000, report, 1, 0.0)
    with opened(path) as log:
        log.append(Note("mine"))


@pytest.mark.parametrize("size", range(0, 400, 7))
def test_full_disk_leaves_whole_lines(tmp_path: Path, size: int) -> None:
    path, appended, ids = tmp_path / "n.jsonl", ["a"], []
    with opened(path) as log:
        log.append(Note("a", "x" * 50))
        with full_disk(path.stat().st_size + size):
            for number in range(6):
                with suppress(UsageError):
                    log.append(Note(str(number), "y" * (number * 20)))
                    appended.append(str(number))
            before = path.read_bytes()
            try:
                log.replace([encode(Note("new", "z" * 300)), *(line for _, line in log.lines())])
                appended.insert(0, "new")
            except UsageError:
                assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])
        log.append(Note("b"))
    assert (ids := there(path)) == [*appended, "b"], ids
    assert list(tmp_path.iterdir()) == [path]


def test_second_writer_is_named_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    with opened(path) as log:
        for _ in range(2):
            with pytest.raises(UsageError, match=rf"{path}: another process is writing this file"):
                opened(path)
            log.replace([])  # the lock goes over to the new file
        log.append(Note("a"))
    assert there(path) == ["a"]


def test_two_processes_never_mix(tmp_path: Path) -> None:
    path, program = tmp_path / "n.jsonl", "\n".join([
        "import sys",
        "from prill.errors import UsageError",
        "from tests.integration.io.test_append_log import Note, opened",
        "done = 0",
        "while done < 40:",
        "    try:",
        "        with opened(sys.argv[1]) as log:",
        "            for _ in range(4):",
        "                log.append(Note(f'{sys.argv[2]}{done}', 'x' * 3000))",
        "                done += 1",
        "            log.replace(line for _, line in log.lines())",
        "    except UsageError as error:",
        "        assert 'another process' in str(error), error",
    ])  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(path)]
    writers = [subprocess.Popen([*command, name], cwd=ROOT, env=environment) for name in "ab"]
    assert [writer.wait(timeout=100) for writer in writers] == [0, 0]
    ids = there(path)
    assert sorted(ids) == sorted(f"{name}{number}" for name in "ab" for number in range(40))


def test_any_cut_of_the_end_is_mended(tmp_path: Path) -> None:
    path, notes = tmp_path / "n.jsonl", [Note("a", "é 😀"), Note("b", '"}{"'), Note("c")]
    whole = b"".join(map(encode, notes))
    ends = [sum(len(encode(note)) for note in notes[:number]) for number in range(4)]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        found = there(path)
        # A line that lacks its newline alone is whole.
        assert len(found) == sum(cut >= end - 1 for end in ends[1:]), cut
        assert path.read_bytes() == whole[: ends[len(found)]]


@pytest.mark.parametrize(
    "noise", [b"\0" * 4096, b"\xff\xfe", b"x" * 200_000, b"{", b'{"id":"b","text":' + b"[" * 50_000]
)
def test_noise_after_records_is_cut(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(encode(Note("a")) + noise)
    assert there(path) == ["a"]
    assert path.read_bytes() == encode(Note("a"))


FOREIGN = [
    b"my notes",
    b"my notes\nand more",
    b'{"title": "mine"}',
    b"[]",
    b"\x1f\x8b\x08\x00",
    b"\xef\xbb\xbf{}\n",
    b'"a"\n',
]


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_of_something_else_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"n\.jsonl:[12]: not a note \(.*\); choose another file"):
        opened(path)
    assert path.read_bytes() == content


def test_records_over_several_lines_stay(tmp_path: Path) -> None:
    path, starts = tmp_path / "n.jsonl", {}
    pretty = msgspec.json.format(encode(Note("a", "b")).strip(), indent=1) + b"\n"
    path.write_bytes(pretty + encode(Note("c")))
    with opened(path, lambda note, start: starts.__setitem__(note.id, start)) as log:
        assert starts == {"a": 0, "c": len(pretty)}
        log.replace(line for start, line in log.lines() if start == starts["a"])
    assert path.read_bytes() == pretty


def test_begun_again_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    for name in "ab":
        with opened(path, restart=True) as log:
            log.append(Note(name))
    with opened(path, restart=True):
        pass
    assert (there(path), there(tmp_path / "n.jsonl.bak"), there(tmp_path / "n.jsonl.bak2")) == (
        [],
        ["a"],
        ["b"],
    )


def test_a_name_of_any_length_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 249 + ".jsonl")
    with opened(path) as log:
        log.append(Note("a"))
        log.replace([encode(Note("b"))])
    assert there(path) == ["b"]
