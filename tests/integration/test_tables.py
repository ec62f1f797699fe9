"""Verdicts as tables: nothing unknown becomes False, and nothing that a judge said becomes a
formula, markup or a command.
"""

from __future__ import annotations

import builtins
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import MissingExtraError
from prill.io.store import encode
from prill.io.tables import Table, Verdicts, data_frame, table
from prill.types import EvaluatorInfo, LabelRecord, Usage, Verdict

JUDGE = EvaluatorInfo("vlm", "1", "gpt")
SUCCESS = Verdict(
    id="a",
    success=True,
    score=0.75,
    reason="done",
    evaluator=JUDGE,
    usage=Usage(2, 812, 64, 1, 0.25),
    seconds=1.5,
)
FAILURE = Verdict(id="b", success=False, score=0.0, evaluator=replace(JUDGE, model=None))
UNSCORED = Verdict(
    id="c", unscored="parse", reason="no verdict", evaluator=JUDGE, usage=Usage(usd=None)
)
VERDICTS = [SUCCESS, FAILURE, UNSCORED]
LABELS = [
    LabelRecord(id="a", success=None),
    LabelRecord(id="a", success=True),
    LabelRecord(id="b", success=None),
]
COLUMNS = ["id", "success", "score", "unscored", "reason", "judge", "model"]
COLUMNS += ["prompt_tokens", "completion_tokens", "calls", "usd", "seconds", "fitted_on"]
CELLS = ("a", True, 0.75, None, "done", "vlm", "gpt", 812, 64, 2, 0.25, 1.5, None)
HOSTILE = [
    '=HYPERLINK("http://x")', "+1", "-2+3", "@SUM(1)", " =1", "\t=1", "\r=1", "\n=1", "＝1",
    "=\x1b[31m",
]  # fmt: skip


def files(folder: Path) -> tuple[Path, Path]:
    (folder / "v.jsonl").write_bytes(b"".join(map(encode, VERDICTS)))
    (folder / "l.jsonl").write_bytes(b"".join(map(encode, LABELS)))
    return folder / "v.jsonl", folder / "l.jsonl"


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def missing(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = builtins.__import__

    def find(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", find)


def test_a_row_holds_verdict_judge_and_cost() -> None:
    made = prill.table(VERDICTS)
    assert made.columns == tuple(COLUMNS)
    assert list(made.to_rows()[0].items()) == [*zip(COLUMNS, CELLS, strict=True)]
    assert [row["success"] for row in made.to_rows()] == [True, False, None]
    assert (
        made.to_rows()[2]["unscored"],
        made.to_rows()[2]["usd"],
        made.to_rows()[1]["model"],
    ) == ("parse", None, None)


def test_files_and_records_give_one_table(tmp_path: Path) -> None:
    verdicts, labels = files(tmp_path)
    assert (
        table(verdicts, str(labels))
        == table(VERDICTS, LABELS)
        == Verdicts(VERDICTS).table(iter(LABELS))
    )


def test_a_label_is_of_those_who_decide() -> None:
    assert [row["label"] for row in table(VERDICTS, LABELS).to_rows()] == [True, None, None]
    assert [row["label"] for row in table(VERDICTS, []).to_rows()] == [None, None, None]


def test_no_verdicts_are_a_table_too() -> None:
    empty = table([])
    assert (len(empty), empty.to_rows(), empty.to_csv()) == (0, [], ",".join(COLUMNS) + "\n")
    assert "0 verdicts" in Verdicts()._repr_html_()


def test_pandas_keeps_null_apart_from_false() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: make test installs it")
    frame = table(VERDICTS, LABELS).to_pandas()
    assert list(frame.columns) == [*COLUMNS, "label"]
    assert frame["success"].tolist() == [True, False, pandas.NA]
    assert frame["success"].mean() == 0.5
    assert frame["label"].isna().tolist() == [False, True, True]
    assert (frame["usd"].isna().tolist(), frame["calls"].sum()) == ([False, False, True], 2)
    assert {name: str(dtype) for name, dtype in table([]).to_pandas().dtypes.items()} == {
        name: str(dtype) for name, dtype in frame.dtypes.items() if name != "label"
    }


def test_arrow_keeps_null_apart_from_false() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: make test-all installs it")
    made = table(VERDICTS, LABELS)
    assert made.to_arrow().to_pylist() == made.to_rows()
    assert table([]).to_arrow().schema.field("success").type == "bool"


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("pandas", Table.to_pandas),
        ("pandas", lambda made: Verdicts(VERDICTS).to_pandas()),
        ("pandas", lambda made: data_frame(made.to_rows())),
        ("pyarrow", Table.to_arrow),
        ("datasets", Table.to_datasets),
        ("datasets", lambda made: prill.to_dataset(VERDICTS)),
        ("datasets", lambda made: prill.from_dataset(None)),  # type: ignore[call-overload]
    ],
)
def test_what_is_missing_is_named(module: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing(module, monkeypatch)
    with pytest.raises(
        MissingExtraError, match=f"{module} is not installed; run: pip install {module}$"
    ):
        make(table(VERDICTS))


def test_csv_leaves_null_cells_empty() -> None:
    rows = read_csv(table(VERDICTS).to_csv())
    assert [row["success"] for row in rows] == ["true", "false", ""]
    assert [row["usd"] for row in rows] == ["0.25", "0.0", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_holds_no_formula(text: str) -> None:
    record = replace(SUCCESS, id=text, reason=text, evaluator=EvaluatorInfo(text, "1", text))
    (row,) = read_csv(table([record]).to_csv())
    assert {row[name][0] for name in ("id", "reason", "judge", "model")} == {"'"}
    assert row["prompt_tokens"] == "812", "numbers stay numbers"


def test_csv_keeps_quotes_and_line_breaks() -> None:
    text = 'he said "no",\r\nthen, 1\r2\n日本語 a\u00a0b\u200d'
    (row,) = read_csv(table([replace(SUCCESS, reason=text)]).to_csv())
    assert row["reason"] == 'he said "no",\nthen, 1\n2\n日本語 a\u00a0b\u200d'


@pytest.mark.parametrize("form", [Table.to_csv, Table.to_markdown])
def test_no_form_carries_terminal_controls(form: Any) -> None:
    evil = "".join(map(chr, (*range(32), *range(127, 160), 0x2028, 0x202E, 0x2066)))
    text = form(table([replace(SUCCESS, id=f"x{evil}y", reason=evil)]))
    assert {c for c in text if not c.isprintable()} <= {"\n", "\t"}


def test_markdown_escapes_its_own_signs() -> None:
    reason = "a|b\n![x](http://t) <img src=x> `c` \\| *d* &lt;"
    lines = table([replace(SUCCESS, reason=reason)]).to_markdown().splitlines()
    assert len(lines) == 3
    assert r"a\|b !\[x\](http://t) &lt;img src=x> \`c\` \\\| \*d\* &amp;lt;" in lines[2]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines[:2]] == [len(COLUMNS) + 1] * 2


def in_notebooks(*verdicts: Verdict) -> Iterator[str]:
    yield verdicts[0]._repr_html_()
    yield Verdicts(verdicts)._repr_html_()
    yield Verdicts(verdicts).table()._repr_html_()


def test_notebooks_get_text_never_markup() -> None:
    evil = "<script>alert(1)</script>"
    record = replace(SUCCESS, id=evil, reason=evil, evaluator=EvaluatorInfo(evil, "1", evil))
    for html in in_notebooks(record):
        assert "<script" not in html
        assert "&lt;script&gt;" in html


def test_a_card_says_verdict_reason_and_cost() -> None:
    card = SUCCESS._repr_html_()
    for part in ("success", "score 0.750", "done", "vlm, gpt", "0.2500 USD", "812 + 64", "1.5 s"):
        assert part in card
    assert ", score" not in UNSCORED._repr_html_()
    assert (
        "unscored: parse" in UNSCORED._repr_html_(),
        "cost unknown" in UNSCORED._repr_html_(),
    ) == (True, True)
    assert "failure" in FAILURE._repr_html_()
