"""Forms of JSON that are read, pipes that are read once and opened often, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.errors import InputError, UsageError
from prill.io.lines import forget_streams, open_lines, read_lines, resolve_folder
from prill.io.store import read_trajectories

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
    assert [item.id for item in read_trajectories(path)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "opening", [b"{\n", b'{\n  "id": "x",\n', b"[1\n", b"[" * 10_000 + b"\n", b"[1]\n"]
)
def test_a_broken_beginning_costs_no_line(opening: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(opening + LINES)
    ids = [item.id for item in read_trajectories(path, "yield")]
    assert ids[-3:] == ["0", "1", "2"]
    assert ids[0] == f"{path}:1"


def test_utf16_says_how_to_save_it(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        (tmp_path / "t.jsonl").write_bytes(LINES.decode().encode(encoding))
        with pytest.raises(InputError, match=r"t\.jsonl:1: the text is UTF-16; save it as UTF-8"):
            list(read_trajectories(tmp_path / "t.jsonl"))


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
    assert [item.id for item in read_trajectories("-")] == ["0", "1", "2"]
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
