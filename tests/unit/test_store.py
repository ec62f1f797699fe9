"""Trajectory, label and verdict files."""

import contextlib
import gzip
import json
import re
from pathlib import Path

import pytest

from prill.errors import InputError, UsageError
from prill.io.store import (
    BadLine,
    TrajectoryReader,
    decode_trajectory,
    encode,
    encode_trajectory,
    iter_trajectories,
    read_labels,
    read_verdicts,
)
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict

FULL = {
    "id": "a",
    "task": {"id": "t", "goal": "buy", "platform": "web", "site": "shop", "start_url": None},
    "agent": "x",
    "steps": [
        {
            "observation": {
                "screenshot": "images/0.png",
                "text": "tree",
                "url": "u",
                "caption": None,
            },
            "action": {
                "kind": "click",
                "text": "click 1",
                "target": "b",
                "point": [0.5, 0.25],
                "end_point": None,
                "value": None,
            },
            "thought": "hm",
        }
    ],
    "final": {"screenshot": "images/1.png", "text": None, "url": None, "caption": "done"},
    "answer": "yes",
    "metadata": {"seed": 3},
}


def test_documented_line_round_trips(tmp_path: Path) -> None:
    trajectory = decode_trajectory(json.dumps(FULL).encode(), tmp_path)
    assert trajectory.steps[0].observation.screenshot == str(tmp_path / "images/0.png")
    assert json.loads(encode_trajectory(trajectory, tmp_path)) == FULL


def test_unknown_keys_go_to_metadata(tmp_path: Path) -> None:
    record = json.loads(json.dumps(FULL))
    record["extra"] = 1
    record["task"]["difficulty"] = "hard"
    record["steps"][0]["action"]["raw"] = {"a": [1]}
    trajectory = decode_trajectory(json.dumps(record).encode(), tmp_path)
    expected = {"seed": 3, "extra": 1, "task.difficulty": "hard", "steps[0].action.raw": {"a": [1]}}
    assert trajectory.metadata == expected


BROKEN = [
    (b"{", "not valid JSON"),
    (b"[1]", "expected a JSON object"),
    (b'{"task": {"goal": "g"}}', "missing field `id`"),
    (b'{"id": "", "task": {"goal": "g"}}', "id is empty"),
    (b'{"id": "a", "task": {"goal": 3}}', r"\$\.task\.goal"),
    (b'{"id": "a", "task": {"goal": "g", "platform": "tv"}}', r"\$\.task\.platform"),
    (
        b'{"id": "a", "task": {"goal": "g"}, "steps": '
        b'[{"observation": {}, "action": {"kind": 3}}]}',
        r"steps\[0\]\.action\.kind",
    ),
    (
        b'{"id": "a", "task": {"goal": "g"}, "steps": [{"observation": {}, "action": {"kind": '
        b'"tap", "point": [2, 0]}}]}',
        "fraction",
    ),
    (
        b'{"id": "a", "task": {"goal": "g"}, "final": {"screenshot": "../../etc/x.png"}}',
        "leaves the folder",
    ),
    (
        b'{"id": "a", "task": {"goal": "g"}, "final": {"screenshot": "/etc/x.png"}}',
        "leaves the folder",
    ),
    (b'{"id": "a", "task": {"goal": "\xff"}}', "not valid JSON"),
    (b'{"id": "a", "task": {"goal": "half \\ud800"}}', "not valid JSON"),
    (
        b'{"id": "a", "task": {"goal": "g"}, "final": {"screenshot": "a\\u0000.png"}}',
        r"null character - at `\$\.final",
    ),
    (b"[" * 100_000, "not valid JSON"),
]


@pytest.mark.parametrize(("line", "problem"), BROKEN)
def test_broken_line_says_what_and_where(line: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        decode_trajectory(line, tmp_path)


@pytest.mark.parametrize(
    "path", ["..", "in/..", "in/../..", "in/../../secret.png", "out/secret.png", "in/../out/x.png"]
)
def test_no_path_leaves_the_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "out").symlink_to(tmp_path)
    state = f'{{"id": "a", "task": {{"goal": "g"}}, "final": {{"screenshot": "{path}"}}}}'
    if path == "in/..":  # the folder itself is inside
        assert decode_trajectory(state.encode(), tmp_path / "data").final is not None
        return
    with pytest.raises(InputError, match="leaves the folder"):
        decode_trajectory(state.encode(), tmp_path / "data")


@pytest.mark.parametrize("packed", [False, True])
def test_reading_survives_a_broken_line(packed: bool, tmp_path: Path) -> None:
    lines = (
        b'{"id": "a", "task": {"goal": "g"}}\n\n{"id": "b", "task": {}}\n{"id": "c", "task": '
        b'{"goal": "g"}}'
    )
    path = tmp_path / "t.jsonl"  # the content, not the name, tells that it is packed
    path.write_bytes(gzip.compress(lines) if packed else lines)
    first, broken, last = iter_trajectories(path, on_error="yield")
    assert (first.id, last.id) == ("a", "c")
    assert isinstance(broken, BadLine)
    assert broken.id == "b"
    assert broken.message == f"{path}:3: missing field `goal` - at `$.task`"


def broken_file(folder: Path) -> Path:
    path = folder / "t.jsonl"
    good = b'{"id": "%d", "task": {"goal": "g"}}\n'
    path.write_bytes(good % 1 + b'{"id": "b", "task": {}}\n' + good % 2 + b"{\n" + good % 3)
    return path


def test_a_broken_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = broken_file(tmp_path)
    reading = iter_trajectories(path)
    assert next(reading).id == "1"  # one at a time: what comes before the line is there
    with pytest.raises(
        InputError, match=re.escape(f"{path}:2: missing field `goal` - at `$.task`")
    ):
        next(reading)


def test_broken_lines_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = broken_file(tmp_path)
    assert [run.id for run in iter_trajectories(path, on_error="skip")] == ["1", "2", "3"]
    assert caplog.messages == [
        (
            f"{path}: 2 broken lines left out; the first is {path}:2: missing field `goal` - at "
            "`$.task`"
        )
    ]
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("prill.io.store", "WARNING")
    ]
    caplog.clear()
    reading = iter_trajectories(path, on_error="skip")
    assert [next(reading).id for _ in range(2)] == ["1", "2"]
    reading.close()  # whoever stops is told of what was read
    assert caplog.messages[0].startswith(f"{path}: 1 broken line left out;")


def test_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        list(iter_trajectories(tmp_path / "none.jsonl"))
    with pytest.raises(UsageError, match="directory"):
        list(iter_trajectories(tmp_path))


def test_cut_archive_yields_its_good_part(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    lines = b"".join(
        b'{"id": "%d", "task": {"goal": "%s"}}\n' % (i, str(hash(str(i))).encode())
        for i in range(5000)
    )
    path.write_bytes(gzip.compress(lines)[:-2000])
    reading = iter_trajectories(path)
    assert isinstance(next(reading), Trajectory)
    with pytest.raises(InputError, match="cannot be read any further"):
        list(reading)


def test_verdict_keys_are_the_documented(tmp_path: Path) -> None:
    verdict = Verdict(
        id="a",
        success=True,
        score=0.9,
        evaluator=EvaluatorInfo("vlm", "1", "m", "sha256:0", {"k": 1}),
        key="sha256:1",
    )
    (tmp_path / "v.jsonl").write_bytes(encode(verdict))
    assert list(read_verdicts(tmp_path / "v.jsonl")) == [verdict]
    keys = [
        "id", "success", "score", "unscored", "reason", "steps", "rewards", "usage", "seconds",
        "evaluator", "key",
    ]  # fmt: skip
    keys += ["findings", "opinions", "fitted_on"]
    assert list(json.loads(encode(verdict))) == keys


def test_only_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    line = encode(Verdict(id="a", success=True, evaluator=EvaluatorInfo("vlm", "1")))
    path = tmp_path / "v.jsonl"
    path.write_bytes(line + line[:20])
    assert len(list(read_verdicts(path))) == 1
    path.write_bytes(line[:20] + b"\n" + line)
    with pytest.raises(InputError, match=r"v\.jsonl:1"):
        list(read_verdicts(path))


def test_labels_need_id_and_success(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text(
        '{"id": "a", "success": null, "source": "human", "annotator": "x", "note": null}\n'
    )
    assert next(read_labels(path)).success is None
    path.write_text('{"id": "a"}\n')
    with pytest.raises(InputError, match="success"):
        list(read_labels(path))


@pytest.mark.parametrize(
    ("success", "unscored", "score"),
    [(None, None, None), (True, "parse", None), (None, "parse", 0.5), (True, None, 2)],
)
def test_contradictory_verdict_is_refused(
    success: bool | None, unscored: str | None, score: float | None
) -> None:
    with pytest.raises(ValueError, match="verdict|score"):
        Verdict(
            id="a",
            success=success,
            unscored=unscored,
            score=score,
            evaluator=EvaluatorInfo("x", "1"),
        )  # type: ignore[arg-type]


def test_wrong_kind_of_file_is_named(tmp_path: Path) -> None:
    kinds = {
        "verdicts": encode(
            Verdict(id="a", success=True, score=1.0, evaluator=EvaluatorInfo("vlm", "1"))
        ),
        "labels": encode(LabelRecord(id="a", success=True)),
        "trajectories": json.dumps(FULL).encode() + b"\n",
    }
    for name, line in kinds.items():
        (tmp_path / name).write_bytes(line)
    for wanted, reader in (("verdicts", read_verdicts), ("labels", read_labels)):
        for held in kinds:
            if held == wanted:
                assert len(list(reader(tmp_path / held))) == 1
            else:
                with pytest.raises(UsageError, match=f"contains {held}, not {wanted}"):
                    list(reader(tmp_path / held))


def test_repeated_ids_are_found_beyond_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prill.io.store._IDS_IN_MEMORY", 2)
    path = tmp_path / "runs.jsonl"
    ids = ["a", "b", "c", "d", "a", "c", "e"]
    path.write_text("".join(f'{{"id":"{id}","task":{{"goal":"g"}},"steps":[]}}\n' for id in ids))
    with contextlib.closing(TrajectoryReader([path])) as reader:
        items = [item for _, item in reader]
    assert [isinstance(item, BadLine) for item in items] == [False] * 4 + [True, True, False]
    problems = [item.problem for item in items if isinstance(item, BadLine)]
    assert "runs.jsonl:1" in problems[0]
    assert "runs.jsonl:3" in problems[1]
