"""Names, terminals, disks and files that are not as one would wish: one clear error each, or none
at all.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from prill.io import lines
from prill.io.store import encode, iter_trajectories, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Verdict
from tests.support.commands.command import Prill, write_trajectories

INFO = EvaluatorInfo("always-fail", "1")
NO_UTF8 = os.fsdecode(b"t\xff.jsonl")


def test_ids_cannot_steer_the_terminal(prill: Prill, tmp_path: Path) -> None:
    id = "a\x1b]0;owned\x07\x9b2J\rb"
    (tmp_path / "v.jsonl").write_bytes(
        encode(Verdict(id=id, unscored="input", reason=f"{id} is odd", evaluator=INFO))
    )
    (tmp_path / "l.jsonl").write_bytes(encode(LabelRecord(id=id, success=True)))
    for words in (
        ["table", "v.jsonl"],
        ["agree", "v.jsonl", "l.jsonl"],
        ["show", id, "--verdicts", "v.jsonl"],
        ["convert", "atif", id, "-o", "o"],
    ):
        done = prill(*words)
        assert not {"\x1b", "\x07", "\x9b", "\r"} & set(done.stdout)
        assert not {"\x1b", "\x07", "\x9b"} & set(done.stderr)
    assert "a?]0;owned??2J b" in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_old_encoding_ends_no_run(
    prill: Prill, tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = Verdict(id="a", success=True, score=1.0, reason="“見る” …", evaluator=INFO)
    (tmp_path / "v.jsonl").write_bytes(encode(verdict))
    printed = io.BytesIO()
    with io.TextIOWrapper(printed, encoding) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert prill("table", "v.jsonl").returncode == 0  # a table is data, and always UTF-8
        assert prill("show", "a", "--verdicts", "v.jsonl").returncode == 0
        assert b"\\u898b\\u308b" in printed.getvalue()


def test_a_name_need_not_be_utf8(prill: Prill, tmp_path: Path) -> None:
    write_trajectories(tmp_path / NO_UTF8, 2)
    with (tmp_path / NO_UTF8).open("ab") as file:
        file.write(b"{broken\n")
    output = os.fsdecode(b"v\xff.jsonl")
    assert prill("score", NO_UTF8, "-o", output, "--judge", "always-fail").returncode == 3
    assert [verdict.id for verdict in read_verdicts(tmp_path / output)] == [
        "t0",
        "t1",
        r"t\xff.jsonl:3",
    ]
    assert (
        prill("report", NO_UTF8, "-o", os.fsdecode(b"r\xff.html"), "--verdicts", output).returncode
        == 3
    )
    assert prill("table", output).returncode == 0


@pytest.mark.parametrize("verb", ["score", "table", "report"])
def test_a_full_device_is_one_error(prill: Prill, tmp_path: Path, verb: str) -> None:
    write_trajectories(tmp_path / "t.jsonl", 50)
    (tmp_path / "v.jsonl").write_bytes(encode(Verdict(id="t0", success=True, evaluator=INFO)))
    words = {
        "score": ["t.jsonl", "--judge", "always-fail"],
        "table": ["v.jsonl"],
        "report": ["t.jsonl"],
    }[verb]
    done = prill(verb, *words, "-o", "/dev/full")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (
        2,
        f"prill {verb}: /dev/full: cannot be written: No space left on device",
    )


@pytest.mark.parametrize(
    "record", [b'{"id": "' + b"a" * 5000, b"{\n" + b' "x":1,\n' * 700 + b"}\n", b"[" + b"1," * 3000]
)
def test_a_line_without_end_is_not_held(
    record: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 4096)
    good = write_trajectories(tmp_path / "good.jsonl", 1).read_bytes()
    with gzip.open(tmp_path / "t.jsonl.gz", "wb") as file:
        file.write(good + record)
    seen = []
    with pytest.raises(
        lines.InputError,
        match=r"t\.jsonl\.gz:2: cannot be read any further: the record is longer than",
    ):
        for item in iter_trajectories(tmp_path / "t.jsonl.gz"):
            seen.append(item.id)
    assert seen == ["t0"]
