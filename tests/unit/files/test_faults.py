"""What is said of a record that is broken: what is wrong, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.errors import InputError
from prill.io.faults import unknown_keys
from prill.io.schemas import check_file
from prill.io.store import decode_trajectory, encode, read_labels, read_verdicts
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict

STEP = {"observation": {}, "action": {"kind": "click"}}
GOOD = {"id": "a", "task": {"goal": "g"}, "steps": [STEP]}


def step(**changes: object) -> dict[str, object]:
    return {**GOOD, "steps": [{**STEP, **changes}]}


BROKEN: list[tuple[bytes, str]] = [
    (
        b'{"id": "a", "task": {"goal": "g"}, "metadata": {"x": NaN}}',
        "NaN is no JSON: write null, or leave the key out",
    ),
    (
        b'{"id": "a", "task": {"goal": "g"}, "metadata": {"x": -Infinity}}',
        "Infinity is no JSON: write null",
    ),
    (
        b"{'id': 'a', 'task': {'goal': 'g'}}",
        "this is Python's own notation: write it with json.dumps",
    ),
    (b'{"id": "a", "task": {"goal": "\xe9"}}', "save the file as UTF-8"),
    (b"{", "write each object on one line"),
    (json.dumps([GOOD]).encode()[:-2], "write one object a line instead of an array"),
    (
        json.dumps({**GOOD, "task": {"gaol": "g"}}).encode(),
        "missing field `goal` - at `$.task`; is it `gaol`, a key that is",
    ),
    (
        json.dumps(step(action={"knid": "click"})).encode(),
        "missing field `kind` - at `$.steps[0].action`; is it `knid`",
    ),
    (
        json.dumps({"Id": "a", "task": {"goal": "g"}}).encode(),
        "missing field `id`; is it `Id`, a key that is unknown?",
    ),
    (
        json.dumps({**GOOD, "task": {"goal": "g", "platform": "andriod"}}).encode(),
        "at `$.task.platform`; expected one of web, android, ios, desktop, other (did you mean "
        "'android'?)",
    ),
    (
        json.dumps(step(action={"kind": "click", "point": [512, 300]})).encode(),
        "is outside the screen; expected fractions between 0 and 1 "
        "(divide pixels by width and height)",
    ),
]


@pytest.mark.parametrize(("line", "remedy"), BROKEN, ids=range(len(BROKEN)))
def test_a_fault_says_what_to_do(line: bytes, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        decode_trajectory(line, tmp_path)
    assert remedy in str(caught.value)
    (tmp_path / "t.jsonl").write_bytes(
        json.dumps({**GOOD, "id": "b"}).encode() + b"\n" + line + b"\n"
    )
    report = check_file(tmp_path / "t.jsonl")
    assert report.problems == [f"{tmp_path}/t.jsonl:2: {caught.value}"], (
        "check and readers say the same"
    )


def test_labels_and_verdicts_say_the_same(tmp_path: Path) -> None:
    verdict = encode(
        Verdict(id="a", success=None, unscored="parse", evaluator=EvaluatorInfo("vlm", "1"))
    )
    label = encode(LabelRecord(id="a", success=None, undecided="unsure"))
    cases = (
        (
            read_verdicts,
            verdict,
            verdict.replace(b'"parse"', b'"prase"'),
            "(did you mean 'parse'?)",
        ),
        (
            read_labels,
            label,
            label.replace(b'"unsure"', b'"unsur"'),
            "expected one of not_executable, unsure (did you mean 'unsure'?)",
        ),
        (read_labels, label, b'{"id": "b", "success": NaN}\n', "NaN is no JSON"),
    )
    path = tmp_path / "f.jsonl"
    for reader, good, broken, remedy in cases:
        path.write_bytes(good + broken)
        with pytest.raises(InputError) as caught:
            list(reader(path))
        assert remedy in str(caught.value)
        assert check_file(path).problems == [str(caught.value)]


def test_unknown_keys_have_their_path() -> None:
    record = {
        **GOOD,
        "anwser": 1,
        "steps": [{**STEP, "observation": {"txt": ""}, "x": 1}],
        "metadata": {"free": 1},
    }
    record["task"] = {"goal": "g", "earlier": [{"id": "e", "task": {"goal": "f"}, "mood": 1}]}
    paths = {"anwser", "steps[0].observation.txt", "steps[0].x", "task.earlier[0].mood"}
    assert set(unknown_keys(record, Trajectory)) == paths


def test_unknown_keys_keep_the_order_that_keys_of_verdicts_go_by() -> None:
    record = {
        "steps": [{"action": {"e": 1}, "d": 1}],
        "final": {"c": 1},
        "task": {"b": 1},
        "a": 1,
    }
    order = ["a", "task.b", "final.c", "steps[0].d", "steps[0].action.e"]
    assert unknown_keys(record, Trajectory) == order


def test_check_mentions_unknown_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = [{**GOOD, "id": str(i), "anwser": "x"} for i in range(3)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    report = check_file(path)
    assert (report.good, report.problems) == (3, [])
    note = "unknown key `anwser` (did you mean 'answer'?), 3 times in total; judges do not see it"
    assert report.notes == [f"{path}:1: {note}"]
    path.write_text('{"id": "a", "success": true, "sources": "human"}\n')
    assert check_file(path).notes == [
        f"{path}:1: unknown key `sources` (did you mean 'source'?); nothing reads it"
    ]


def test_check_mentions_other_forms(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = json.dumps(GOOD).encode() + b"\n"
    for data, words in (
        (b"\xef\xbb\xbf" + line, ":1: begins with a byte order mark"),
        (line.replace(b"\n", b"\r\n"), ":1: lines end as on Windows"),
        (b"[" + line + b"]", ":1: a JSON array"),
        (json.dumps(GOOD, indent=2).encode(), ":1: objects over several lines"),
    ):
        path.write_bytes(data)
        report = check_file(path)
        assert (report.good, report.problems, len(report.notes)) == (1, [], 1)
        assert report.notes[0].startswith(f"{path}{words}")


def test_check_mentions_records_twice(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    labels = [LabelRecord(id="a", success=True, annotator=name) for name in ("x", "y", "x")]
    path.write_bytes(b"".join(map(encode, labels)))
    assert [note.partition(";")[0] for note in check_file(path).notes] == [
        f"{path}:3: duplicate 'a' by the same judge or annotator, first at {path}:1"
    ]


def test_two_faults_of_a_line_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text(
        '{"id": "a", "success": null, "undecided": "perhaps", "note": 1e999}\n'
    )
    with pytest.raises(
        InputError, match="Invalid enum value 'perhaps'.*; expected one of not_executable, unsure"
    ):
        list(read_labels(tmp_path / "l.jsonl"))
