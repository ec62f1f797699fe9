"""Forms of JSON that are read, pipes that are read once and opened often, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prill.errors import InputError, UsageError
from prill.evaluators.references import read_references
from prill.io.lines import (
    UNREADABLE,
    decode_record,
    forget_streams,
    open_lines,
    read_lines,
    resolve_folder,
)
from prill.io.schemas import check_file
from prill.io.store import iter_trajectories, read_labels, read_verdicts
from prill.io.verdict_log import VerdictLog
from prill.refine.training.samples import read_rows
from prill.types import EvaluatorInfo
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library

RECORDS = [{"id": str(i), "task": {"goal": f"line\nof {i} {{"}, "steps": []} for i in range(3)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()


@pytest.fixture(autouse=True)
def fresh_streams() -> Iterator[None]:
    yield
    forget_streams()


def forms() -> dict[str, bytes]:
    pretty = [json.dumps(record, indent=2) for record in RECORDS]
    return {
        "line": LINES,
        "crlf": LINES.replace(b"\n", b"\r\n"),
        "mark": b"\xef\xbb\xbf" + LINES,
        "pretty": "\n".join(pretty).encode(),
        "array": json.dumps(RECORDS, indent=1).encode(),
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", forms())
def test_forms_hold_the_same_records(form: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(gzip.compress(forms()[form]) if packed else forms()[form])
    lines = list(read_lines(path))
    assert [json.loads(line.data) for line in lines] == RECORDS
    assert lines[0].form == form
    assert not any(b"\n" in line.data for line in lines)


def test_records_know_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for form, width in (("pretty", 7), ("array", 7)):
        path.write_bytes(forms()[form])
        assert [line.number - lines_before(form) for line in read_lines(path)] == [
            0,
            width,
            2 * width,
        ]


def lines_before(form: str) -> int:
    return 2 if form == "array" else 1


def test_an_array_on_one_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(RECORDS))
    assert [item.id for item in iter_trajectories(path)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "opening", [b"{\n", b'{\n  "id": "x",\n', b"[1\n", b"[" * 10_000 + b"\n", b"[1]\n"]
)
def test_a_broken_beginning_costs_no_line(opening: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(opening + LINES)
    ids = [item.id for item in iter_trajectories(path, "yield")]
    assert ids[-3:] == ["0", "1", "2"]
    assert ids[0] == f"{path}:1"


def test_utf16_says_how_to_save_it(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        (tmp_path / "t.jsonl").write_bytes(LINES.decode().encode(encoding))
        with pytest.raises(InputError, match=r"t\.jsonl:1: the text is UTF-16; save it as UTF-8"):
            list(iter_trajectories(tmp_path / "t.jsonl"))


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_opened_often(
    packed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = gzip.compress(LINES) if packed else LINES
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    monkeypatch.chdir(tmp_path)
    with open_lines("-") as first, open_lines("-") as second:
        assert first.readline() == second.readline()
        assert first.read() == second.read()
    assert [item.id for item in iter_trajectories("-")] == ["0", "1", "2"]
    assert resolve_folder("-") == tmp_path.resolve()


def test_a_named_pipe_is_opened_often(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(LINES,))
    writer.start()
    for _ in range(2):
        assert [json.loads(line.data) for line in read_lines(pipe)] == RECORDS
    writer.join()


def test_a_folder_is_no_file_of_lines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory; give a file in it"):
        list(read_lines(tmp_path))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.sampled_from(['"', '\\', '":', "\U0001f600", "a"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)  # fmt: skip


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_records_are_decoded_as_by_msgspec(value: object, ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    for cut in (data, data[:-1], data.replace(b"1", b"NaN", 1), data.replace(b"a", b"\\udbff", 1)):
        try:
            expected = msgspec.json.decode(cut)
        except UNREADABLE as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                decode_record(cut)
        else:
            assert decode_record(cut) == expected


@given(values, st.text(max_size=3), values, st.sampled_from(["%s:%s", " %s\t: %s\n"]), st.data())
def test_key_twice_in_an_object_is_refused(
    value: object, key: str, inner: object, form: str, data: st.DataObject
) -> None:
    assume(all(ord(letter) < 0xD800 for letter in key))
    names = json.dumps(key), '"' + "".join(f"\\u{ord(letter):04x}" for letter in key) + '"'
    pairs = [form % (name, json.dumps(inner)) for name in names]
    twice = "{" + ",".join(data.draw(st.permutations(pairs))) + "}"
    record = f"[{json.dumps(value)}, {twice}, {json.dumps({key: inner})}]"
    with pytest.raises(msgspec.ValidationError, match="is in one object twice"):
        decode_record(record.encode())


LABEL = b'{"id": "a", "success": true, "success": false}'
VERDICT = b'{"id": "a", "success": true, "evaluator": {"name": "n", "name": "m", "version": "1"}}'
RUN = b'{"id": "a", "task": {"goal": "g"}, "steps": [], "steps": []}'
TURN = b'[{"role": "user", "content": "a"}]'
ROW = b'{"prompt": %s, "completion": %s, "verdict": "a", "verdict": "b"}' % (TURN, TURN)


def shown_problems(path: Path) -> list[str]:
    with closing(Library([path])) as library:
        assert list(library.refresh())
        return library.problems


@pytest.mark.parametrize(
    ("read", "line", "key"),
    [
        (iter_trajectories, RUN, "steps"),
        (lambda path: check_file(path).problems, RUN, "steps"),
        (read_labels, LABEL, "success"),
        (lambda path: check_file(path).problems, LABEL, "success"),
        (lambda path: LabelLog(path, "me"), LABEL, "success"),
        (read_verdicts, VERDICT, "name"),
        (lambda path: check_file(path).problems, VERDICT, "name"),
        (lambda path: VerdictLog(path, EvaluatorInfo("n", "1")), VERDICT, "name"),
        (read_references, b'{"id": "a", "reference": "b", "id": "c"}', "id"),
        (shown_problems, RUN, "steps"),
        (read_rows, ROW, "verdict"),
    ],
)
def test_every_reader_names_the_line_of_a_key_twice(
    read: Callable[[Path], Iterable[object]], line: bytes, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line + b"\n")
    try:
        said = " ".join(map(str, read(path)))
    except (InputError, UsageError) as error:
        said = str(error)
    assert f"{path}:1: " in said and f"the key {key!r} is in one object twice" in said


COMMANDS = [
    ["check", "runs"],
    ["score", "runs", "--judge", "always-fail", "-o", "v.jsonl"],
    ["report", "runs", "-o", "r.html"],
    ["convert", "runs", "-o", "out"],
]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("what", ["values", "array", "blank"])
def test_small_archives_fill_no_memory_and_no_time(
    words: list[str], what: str, tmp_path: Path
) -> None:
    million = 10**6
    content = {
        "values": b'{"id": "a", "task": {"goal": "g"}, "metadata": {"a": [' + b"{}," * 20 * million,
        "array": b"[" + b"1," * 30 * million + b"1]",
        "blank": b"",
    }[what]
    blank = gzip.compress(b"\n" * million, 1) * 400 if what == "blank" else b""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/t.jsonl").write_bytes(LINES)
    path = tmp_path / "runs/z.jsonl.gz"
    path.write_bytes(gzip.compress(content + b"{}]}}\n", 1) + blank)
    code = f"""
from prill.cli import main
try:
    main({words!r})
finally:
    # of this program alone: ru_maxrss counts what its parent had when it was forked, too
    print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert int(done.stdout.split()[-1]) < 600_000, done.stdout + done.stderr
