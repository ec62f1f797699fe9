"""State that commands take up, damaged in every way: the same figures, or one clear error that
names the file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prill.io.store import encode
from prill.refine.rewards import WatchRecord
from prill.testing import MockServer
from prill.types import EvaluatorInfo, LabelRecord, Opinion, Verdict
from tests.support.commands.command import Prill
from tests.support.commands.command import write_trajectories as write_orders
from tests.support.paths import SUPPORT

HUGE = 70_000_000  # bytes: more than a line may have


@dataclass(frozen=True)
class Case:
    """A command that reads or resumes `state`, a file, and what it gives: its output and these
    files.

    `remakes`: what is lost is made again, so that only files and exit code are the same. `tells`:
    what is said where the state is damaged, where it is not an error.
    """

    state: str
    words: tuple[object, ...]
    gives: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()  # removed before each run
    remakes: bool = False
    tells: str = ""


def orders(folder: Path) -> None:
    write_orders(folder / "t.jsonl", 4)
    judge = EvaluatorInfo("j", "1")
    verdicts = [
        Verdict(id=f"t{i}", success=i % 2 == 0, score=0.9 - i / 10, evaluator=judge)
        for i in range(4)
    ]
    (folder / "v.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    (folder / "a.jsonl").write_bytes(b"".join(map(encode, verdicts[:2])))
    (folder / "b.jsonl").write_bytes(b"".join(map(encode, verdicts[2:])))


def watched(folder: Path, prill: Prill, url: str) -> Case:
    opinion = Opinion(judge="judge", success=True, score=0.8)
    records = [
        WatchRecord(kind="verdict", at="", id=f"r{i}", verdict=opinion, student=opinion)
        for i in range(60)
    ]
    (folder / "log.jsonl").write_bytes(b"".join(map(encode, records)))
    return Case("log.jsonl", ("watch", "log.jsonl", "--json"))


def merged(folder: Path, prill: Prill, url: str) -> Case:
    return Case(
        "a.jsonl",
        ("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl"),
        ("out.jsonl",),
        ("out.jsonl",),
    )


def merged_into(folder: Path, prill: Prill, url: str) -> Case:
    assert prill("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl").returncode == 0
    return Case(
        "out.jsonl",
        ("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl"),
        ("out.jsonl",),
        remakes=True,
    )


def fitted(folder: Path, prill: Prill, url: str) -> Case:
    shutil.copy(SUPPORT / "golden/prior.json", folder / "prior.json")
    words = ("score", "t.jsonl", "-o", "f.jsonl", "--judge", "prior", "--model", "prior.json")
    return Case("prior.json", words, (), ("f.jsonl",))


def calibrated(folder: Path, prill: Prill, url: str) -> Case:
    labels = [LabelRecord(id=f"c{i}", success=i % 3 > 0) for i in range(60)]
    (folder / "cl.jsonl").write_bytes(b"".join(map(encode, labels)))
    judge = EvaluatorInfo("j", "1")
    verdicts = [
        Verdict(id=f"c{i}", success=True, score=(i % 10) / 10, evaluator=judge) for i in range(60)
    ]
    (folder / "cv.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    assert prill("calibrate", "cv.jsonl", "cl.jsonl", "-o", "cal.json").returncode == 0
    return Case(
        "cal.json",
        ("simulate-retries", "--calibration", "cal.json", "--runs", 40, "--tasks", 10, "-o", "sim"),
    )


def captioned(folder: Path, prill: Prill, url: str) -> Case:
    lines = [
        {"id": f"sha256:{n}", "captioner": "c", "image": "a.png", "caption": "A shop"}
        for n in range(3)
    ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = (
        "score",
        "t.jsonl",
        "-o",
        "f.jsonl",
        "--judge",
        "modular",
        "--model",
        "m",
        "--base-url",
        url,
    )
    return Case(
        "captions.jsonl",
        (*words, "--captioner", "captions.jsonl"),
        (),
        ("f.jsonl", "f.transcripts"),
    )


def replied(folder: Path, prill: Prill, url: str) -> Case:
    words = (
        "score",
        "t.jsonl",
        "-o",
        "f.jsonl",
        "--judge",
        "modular",
        "--model",
        "m",
        "--base-url",
        url,
        "--cache",
        "kept",
    )
    assert prill(*words).returncode == 0
    return Case("kept/replies.sqlite", words, (), ("f.jsonl", "f.transcripts"), remakes=True)


def transcribed(folder: Path, prill: Prill, url: str) -> Case:
    words = (
        "score",
        "t.jsonl",
        "-o",
        "s.jsonl",
        "--judge",
        "modular",
        "--model",
        "m",
        "--base-url",
        url,
    )
    assert prill(*words).returncode == 0
    return Case(
        "s.transcripts/calls-0001.jsonl.gz",
        ("show", "t1", "--verdicts", "s.jsonl"),
        tells="s.transcripts has no transcript",
    )


CASES: dict[str, Callable[[Path, Prill, str], Case]] = {
    "watch": watched,
    "merge": merged,
    "merge into": merged_into,
    "fitted judge": fitted,
    "calibration": calibrated,
    "captions": captioned,
    "replies": replied,
    "transcripts": transcribed,
}


def damages(data: bytes) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Ways to damage a file of this content, by name."""
    for share in (0, 1, 2, 3):
        end = len(data) * share // 4
        end += data[end - 1 : end] == b"\n"  # whole lines that are gone cannot be missed
        yield f"cut at {share}/4", lambda path, end=end: path.write_bytes(data[:end])
    yield "without its last byte", lambda path: path.write_bytes(data[:-1])
    for number in range(12):
        place = len(data) * (2 * number + 1) // 24
        flipped = data[:place] + bytes([data[place] ^ (1 << number % 8)]) + data[place + 1 :]
        yield (
            f"bit {number % 8} of byte {place} flipped",
            lambda path, flipped=flipped: path.write_bytes(flipped),
        )
    yield "zeros", lambda path: path.write_bytes(bytes(len(data)))
    yield "UTF-16", lambda path: path.write_bytes(data.decode("latin-1").encode("utf-16"))
    yield "not UTF-8", lambda path: path.write_bytes(data.replace(b'"', b'\xff"', 3))
    yield "an array", lambda path: path.write_bytes(b"[" + data.replace(b"\n", b",") + b"0]")
    other = re.sub(rb'("format": ?"prill [a-z ]*|"version": ?)\d', rb"\g<1>9", data)
    yield "another version", lambda path: path.write_bytes(other)
    yield "deeply nested", lambda path: path.write_bytes(b"[" * 100_000 + data)
    yield "huge", lambda path: path.write_bytes(data + b"x" * HUGE)
    yield "deleted", lambda path: path.unlink()
    yield "a folder", lambda path: (path.unlink(), path.mkdir())
    yield "a link to nothing", lambda path: (path.unlink(), path.symlink_to("nowhere/at/all"))
    yield "a link to itself", lambda path: (path.unlink(), path.symlink_to(path.name))
    yield "a link to a device", lambda path: (path.unlink(), path.symlink_to("/dev/null"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with MockServer() as server:
        yield server.base_url


def outcome(case: Case, done: subprocess.CompletedProcess[str]) -> tuple[object, ...]:
    said = () if case.remakes else (done.stdout,)
    return (
        done.returncode,
        *said,
        *(Path(name).read_bytes() if os.path.isfile(name) else None for name in case.gives),
    )


@pytest.mark.parametrize("name", CASES)
def test_damage_is_named_or_without_effect(
    name: str, prill: Prill, tmp_path: Path, url: str
) -> None:
    orders(tmp_path)
    case = CASES[name](tmp_path, prill, url)
    whole, state = tmp_path.parent / f"{tmp_path.name}-whole", Path(case.state)
    shutil.copytree(tmp_path, whole, symlinks=True)

    def restored() -> None:
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(whole, tmp_path, symlinks=True, dirs_exist_ok=True)
        for path in map(Path, case.fresh):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(
                missing_ok=True
            )

    restored()
    expected = outcome(case, prill(*case.words))
    assert expected[0] in (0, 3), expected
    wrong = []
    for damage, apply in damages((whole / state).read_bytes()):
        if damage == "a link to a device" and case.state in case.gives:
            continue  # devices are written to as they are
        restored()
        apply(state)
        try:
            done = prill(*case.words)
        except Exception as error:  # noqa: BLE001 - what it is stands in the list of what is wrong
            wrong.append(f"{damage}: {type(error).__name__}: {error}"[:300])
            continue
        named = state.name in done.stderr or (case.tells and case.tells in done.stdout)
        if outcome(case, done) != expected and not named and not damage.startswith("bit"):
            wrong.append(f"{damage}: exit code {done.returncode}, {done.stderr[-300:]!r}")
    assert not wrong, "\n".join(wrong)
