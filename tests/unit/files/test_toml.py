"""Settings files: what editors add is no part of them, and what nobody can mean is refused with its
place.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.config.toml import MAX_BYTES, read_table
from prill.errors import UsageError


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.toml", 'a = 1\n[b]\nc = "d"\n'), ("t.json", '{"a": 1,\n "b": {"c": "d"}}\n')],
    ids=["toml", "json"],
)
def test_marks_of_editors_are_no_part_of_it(name: str, text: str, tmp_path: Path) -> None:
    for data in (
        text,
        f"\ufeff{text}",
        text.replace("\n", "\r\n"),
        "\ufeff" + text.replace("\n", "\r\n"),
    ):
        (tmp_path / name).write_bytes(data.encode())
        assert read_table(tmp_path / name) == {"a": 1, "b": {"c": "d"}}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.toml", "[a]\nb = nan", "a.b: expected a finite number, got nan"),
        ("t.toml", "[[a]]\nb = [1.0, -inf]", "a[0].b[1]: expected a finite number, got -inf"),
        ("t.json", '{"a": {"b": NaN}}', "a.b: expected a finite number, got nan"),
        ("t.json", '{"a": 1e999}', "a: expected a finite number, got inf"),
        ("t.json", '{"a": {"b": 1, "b": 2}}', "the key 'b' occurs twice"),
        ("t.toml", "a = 1\na = 2", "Cannot overwrite a value"),
        ("t.json", "[1]", "expected a table, got list"),
    ],
)
def test_what_nobody_can_mean_is_refused(
    name: str, text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read_table(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: ") and problem in str(error.value)


def test_file_named_by_mistake_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "t.toml").open("wb") as file:
        file.truncate(MAX_BYTES * 1000)  # 16 GB of zeros, none of them on disk
    with pytest.raises(UsageError, match="the file has more than 16 MB"):
        read_table(tmp_path / "t.toml")
