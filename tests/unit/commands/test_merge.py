"""Shards of one run, and `prill merge`, as a user meets them."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from prill import MergeConfig, merge
from prill.errors import UsageError
from prill.io.shards import Shard
from prill.io.store import encode, read_verdicts
from prill.io.verdict_log import Merged, merge_verdicts
from prill.types import EvaluatorInfo, Verdict
from tests.support.commands.command import Prill

JUDGE = EvaluatorInfo("vlm", "1")
COUNT = 30


def line(id: str, *, key: str = "k", **fields: object) -> Verdict:
    given = {"success": True, "score": 1.0} | fields if "unscored" not in fields else fields
    return Verdict(id=id, key=key, evaluator=JUDGE, **given)  # type: ignore[arg-type]


def write(path: Path, *verdicts: Verdict) -> Path:
    path.write_bytes(b"".join(map(encode, verdicts)))
    return path


@pytest.fixture
def trajectories(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    rows = [
        {"id": f"run-{i}", "task": {"goal": "Go"}, "steps": [], "answer": "yes"}
        for i in range(COUNT)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    return path


def test_each_id_is_in_one_shard() -> None:
    ids = [f"task-{i}" for i in range(400)] + ["ä", "\ud800"]
    takers = [[Shard(number, 7).takes(id) for number in range(1, 8)] for id in ids]
    assert all(sum(one) == 1 for one in takers)
    assert all(30 < sum(shard) < 90 for shard in zip(*takers, strict=True))  # 57 on average
    assert Shard.read("2/7") == Shard(2, 7)
    assert Shard(1, 4).takes("tea-1")  # by sha256sum; for good: other machines, other days


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "1/2/3", "-1/2"])
def test_odd_shard_is_explained(text: str) -> None:
    with pytest.raises(UsageError, match="shard"):
        Shard.read(text)


def test_shards_merge_to_the_whole_run(prill: Prill, trajectories: Path, tmp_path: Path) -> None:
    words = ("score", "t.jsonl", "--judge", "self-report")
    assert prill(*words, "-o", "whole.jsonl").returncode == 3
    counts = []
    for number in (1, 2, 3):
        assert prill(*words, "-o", f"part{number}.jsonl", "--shard", f"{number}/3").returncode in (
            0,
            3,
        )
        counts.append(len(list(read_verdicts(tmp_path / f"part{number}.jsonl"))))
    assert sum(counts) == COUNT + 1
    assert min(counts) > 0
    done = prill("merge", "part1.jsonl", "part2.jsonl", "part3.jsonl", "-o", "merged.jsonl")
    assert (done.returncode, done.stdout) == (0, f"{COUNT + 1} verdicts, 1 of them unscored\n")
    merged, whole = (
        {v.id: (v.success, v.unscored, v.key) for v in read_verdicts(tmp_path / f"{name}.jsonl")}
        for name in ("merged", "whole")
    )
    assert merged == whole
    again = json.loads(prill(*words, "-o", "merged.jsonl", "--json").stdout)
    assert again["skipped"] == COUNT  # a broken line is looked at again


def test_empty_shard_is_no_error(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "task": {"goal": "Go"}, "steps": []}\n')
    for number in (1, 2):
        assert (
            prill(
                "score",
                "t.jsonl",
                "-o",
                f"{number}.jsonl",
                "--judge",
                "always-fail",
                "--shard",
                f"{number}/2",
            ).returncode
            == 0
        )
    assert sorted((tmp_path / f"{number}.jsonl").stat().st_size > 0 for number in (1, 2)) == [
        False,
        True,
    ]


def test_dry_run_counts_the_shard(prill: Prill, trajectories: Path) -> None:
    words = ("score", "t.jsonl", "-o", "v.jsonl", "--judge", "always-fail", "--dry-run", "--json")
    shares = [
        json.loads(prill(*words, "--shard", f"{number}/4").stdout)["trajectories"]
        for number in (1, 2, 3, 4)
    ]
    assert sum(shares) == COUNT
    assert max(shares) < COUNT


def test_scored_verdict_beats_an_unscored_one(tmp_path: Path) -> None:
    first = write(tmp_path / "1", line("a", unscored="timeout"), line("b", success=False))
    second = write(tmp_path / "2", line("a"), line("b", success=True), line("c", unscored="parse"))
    assert merge_verdicts([first, second], tmp_path / "out") == Merged(
        verdicts=3, unscored=1, left_out=2
    )
    assert [(v.id, v.success) for v in read_verdicts(tmp_path / "out")] == [
        ("b", False),
        ("a", True),
        ("c", None),
    ]


def test_newest_line_of_a_file_counts(tmp_path: Path) -> None:
    # What a run that was killed leaves behind: a verdict made again stands below the old one.
    file = write(tmp_path / "1", line("a", key="old", success=False), line("a", key="new"))
    merge_verdicts([file], tmp_path / "out")
    assert [(v.key, v.success) for v in read_verdicts(tmp_path / "out")] == [("new", True)]


def test_other_evaluators_are_not_merged(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", line("a")), tmp_path / "2"
    second.write_bytes(
        encode(Verdict(id="b", success=True, evaluator=EvaluatorInfo("vlm", "2"), key="k"))
    )
    out = write(tmp_path / "out", line("z"))
    with pytest.raises(UsageError, match=r"another judge .*version 2 there, 1 in"):
        merge_verdicts([first, second], out)
    assert [v.id for v in read_verdicts(out)] == ["z"]


def test_same_id_of_other_content_is_refused(tmp_path: Path) -> None:
    files = [write(tmp_path / name, line("a", key=name)) for name in ("1", "2")]
    with pytest.raises(UsageError, match="'a' differs from that in"):
        merge_verdicts(files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "part.jsonl: no such file"),
        (b"", "part.jsonl: the file is empty"),
        (b"no verdict\n", "part.jsonl:1: not valid JSON"),
        (b"5\n", "part.jsonl:1: Expected `object`, got `int`"),
        (encode(line("a"))[:40] + b"\n" + encode(line("b")), "part.jsonl:1: not valid JSON"),
        (encode(line("a")).replace(b'"score":1.0', b'"score":"1"'), "at `$.score`"),
        (gzip.compress(encode(line("a")))[:-8], "part.jsonl.gz:2: cannot be read any further"),
    ],
)
def test_damaged_shard_is_one_clear_error(
    prill: Prill, tmp_path: Path, data: bytes | None, words: str
) -> None:
    whole, out = (
        write(tmp_path / "whole.jsonl", line("y")),
        write(tmp_path / "out.jsonl", line("z")),
    )
    part = tmp_path / ("part.jsonl.gz" if "gz" in words else "part.jsonl")
    if data is not None:
        part.write_bytes(data)
    before = out.read_bytes()
    done = prill("merge", whole.name, part.name, "-o", "out.jsonl")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert words in done.stderr and out.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} - {"cache"} == {
        whole.name,
        out.name,
        *([part.name] if data is not None else []),
    }


def test_verdicts_that_are_there_stay(tmp_path: Path) -> None:
    out, more = write(tmp_path / "out", line("a")), write(tmp_path / "1", line("b"))
    assert merge_verdicts([more], out).verdicts == 2
    assert merge_verdicts([more], out) == Merged(2, 0, 1)
    with pytest.raises(UsageError, match="also an input"):
        merge_verdicts([out], out)


def test_an_incomplete_last_line_is_told(prill: Prill, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", line("a"), line("b"))
    write(tmp_path / "b.jsonl", line("c"))
    (tmp_path / "a.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes()[:-20])
    done = prill("merge", "a.jsonl", "b.jsonl", "-o", "out.jsonl")
    assert (done.returncode, [v.id for v in read_verdicts(tmp_path / "out.jsonl")]) == (
        3,
        ["a", "c"],
    )
    assert (
        "a.jsonl: left out the incomplete last line" in done.stderr and "b.jsonl" not in done.stderr
    )


def test_merge_in_python_is_that_of_the_command(prill: Prill, tmp_path: Path) -> None:
    parts = [
        write(tmp_path / "1.jsonl", line("a")),
        write(tmp_path / "2.jsonl", line("b", unscored="parse")),
    ]
    merged = merge(MergeConfig(verdicts=parts, output=tmp_path / "python.jsonl"))
    done = prill("merge", "1.jsonl", "2.jsonl", "-o", "command.jsonl", "--json")
    assert (
        json.loads(done.stdout)
        == {"verdicts": 2, "unscored": 1, "left_out": 0, "cut": []}
        == {**asdict(merged), "cut": []}
    )
    assert (tmp_path / "python.jsonl").read_bytes() == (tmp_path / "command.jsonl").read_bytes()
