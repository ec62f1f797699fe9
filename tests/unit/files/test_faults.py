"""What is said of a record that is broken: what is wrong, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.errors import InputError
from prill.io.faults import unknown_keys
from prill.io.schemas import check_file
from prill.io.store import decode_trajectory, read_labels
from prill.types import Trajectory

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


def test_two_faults_of_a_line_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text(
        '{"id": "a", "success": null, "undecided": "perhaps", "note": 1e999}\n'
    )
    with pytest.raises(InputError, match=r"l.jsonl:1: (Number out of range|Invalid enum value)"):
        list(read_labels(tmp_path / "l.jsonl"))
