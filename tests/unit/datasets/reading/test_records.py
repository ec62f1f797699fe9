"""Rows and whole files of other people's data: what is damaged costs itself, and no archive fills
the memory.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from prill.datasets.reading import records as rows
from prill.datasets.reading.records import (
    date_in,
    decode_json,
    image_in,
    read_file,
    read_record,
    read_rows,
)
from prill.datasets.reading.sources import Document, read_document
from prill.errors import InputError
from prill.io.lines import valid_unicode
from prill.io.store import BadLine

DEEP = "[" * 100_000 + "]" * 100_000


@dataclass(frozen=True)
class Row:
    id: str


def test_endless_brackets_cost_their_row(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(
        f'{{"id": "a"}}\n{{"x": {DEEP}, "id": "b"}}\n{{"id": "c"}}\n', encoding="utf-8"
    )
    items = list(read_rows(tmp_path / "r.jsonl", Row, lambda row: [row.id]))
    assert [
        item.place.rpartition(":")[2] if isinstance(item, BadLine) else item for item in items
    ] == ["a", "2", "c"]


def test_cut_archive_keeps_rows_before_cut(tmp_path: Path) -> None:
    lines = [json.dumps({"id": os.urandom(40).hex()}) for _ in range(3000)]
    data = gzip.compress("\n".join(lines).encode())
    (tmp_path / "r.jsonl.gz").write_bytes(data[: len(data) // 2])
    *good, last = read_rows(tmp_path / "r.jsonl.gz", Row, lambda row: [row.id])
    assert good == [json.loads(line)["id"] for line in lines[: len(good)]]
    assert len(good) > 1000
    assert isinstance(last, BadLine)
    assert "cannot be read any further" in last.message


def test_endless_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_FILE", 2**20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(bytes(2**21)))
    (tmp_path / "fits.json").write_bytes(bytes(2**20))
    with pytest.raises(InputError, match="unpacks to more than 1 MiB"):
        read_file(tmp_path / "bomb.json.gz")
    assert len(read_file(tmp_path / "fits.json")) == 2**20


def messages(path: Path) -> list[str]:
    """What is wrong with a file, as lines and as documents."""
    lines = read_rows(path, Row, lambda row: [row.id])
    document = read_record(str(path), lambda: read_document(path, "r"))
    parts = document.records() if isinstance(document, Document) else [("", document)]
    found = [*lines, *(value for _, value in parts)]
    return [item.message for item in found if isinstance(item, BadLine)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('{"id": "a", "b": {"c": 1, "c": 2}}', 2),
        ('{"id": "a", "c": {"b": ":"}, "\\u0063": "\\u003a"}', 2),
        ('{\n "id": "a",\n "c": 1,\n "c": 2\n}', 2),
        ('{"id": "a"}\n{"id": "b", "c": 1, "c": 1}\n{"id": "c"}', 2),
    ],
    ids=["one line", "escaped", "several lines", "lines"],
)
def test_a_key_twice_costs_its_record(text: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="utf-8")
    said = messages(path)
    assert len(said) == count
    assert all("the key 'c' is in one object twice" in message for message in said), said


def test_what_a_row_leaves_out_may_be_no_value() -> None:
    for odd in (b"1e999", b"1" * 5000, b'"\xff"'):
        assert decode_json(b'{"id": "a", "b": ' + odd + b"}", Row) == Row("a")
        with pytest.raises(InputError, match="the key 'b' is in one object twice"):
            decode_json(b'{"id": "a", "b": ' + odd + b', "b": 1}', Row)


@pytest.mark.parametrize("form", ['{"id": "a", "b": [%s]}', '{\n"id": "a",\n"b": [%s]\n}'])
def test_values_of_a_document_are_bounded(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_FILE_VALUES", 1000)
    path = tmp_path / "r.json"
    path.write_text(form % ",".join(["{}"] * 1000), encoding="utf-8")
    said = messages(path)
    assert said and all("the limit is 1,000" in message for message in said), said
    path.write_text(form % ",".join(["{}"] * 497), encoding="utf-8")
    assert not messages(path)


@pytest.mark.parametrize("data", [b"", b"{", b'{"id": 1}', b"\xff", DEEP.encode()])
def test_wrong_records_are_one_error(data: bytes) -> None:
    with pytest.raises(InputError):
        decode_json(data, Row)


@pytest.mark.parametrize("name", ["absent", "folder", "damaged.gz"])
def test_unreadable_files_are_one_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(os.urandom(99))[:40] + b"\xff" * 30)
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("runs/2024-10-26_05-28-49_GenericAgent-x_on_miniwob.a_3", "2024-10-26T05:28:49"),
        ("step_1_20240419@115711123456.png", "2024-04-19T11:57:11"),
        ("20240124_10_12_33", "2024-01-24T10:12:33"),
        ("2023-08-09 15:22:31,123 - INFO - [Config file]", "2023-08-09T15:22:31"),
        ("2026-01-01T23:30:00.25-05:00", "2026-01-02T04:30:00Z"),
        ("2024-13-01_00-00-00 then 2024-01-02 03:04:05", "2024-01-02T03:04:05"),
        ("gpt-4o-2024-11-20_on_webarena", None),
        ("task 1202401021234567", None),
        ("", None),
    ],
)
def test_dates_in_names_and_stamps(text: str, date: str | None) -> None:
    assert date_in(text) == date


def test_lone_surrogates_joined_or_replaced() -> None:
    assert [valid_unicode(text) for text in ("tea é", "\ud83d\ude00", "a\ud800b")] == [
        "tea é",
        "\N{GRINNING FACE}",
        "a�b",
    ]


@pytest.mark.parametrize("name", ["a\0.png", "\ud800.png", "../up.png", "loop/a.png"])
def test_odd_image_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="is not a file name|leaves the folder"):
        image_in(tmp_path, name)
