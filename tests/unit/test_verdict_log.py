"""The verdict file: append, repair, resume, replace."""

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.io.store import encode, read_verdicts
from prill.io.verdict_log import VerdictLog
from prill.types import EvaluatorInfo, Verdict

INFO = EvaluatorInfo("vlm", "1", "m", "sha256:0", {"frames": 1, "list": [1]})


def verdict(
    id: str, success: bool | None = True, unscored: str | None = None, key: str = "k"
) -> Verdict:
    return Verdict(id=id, success=success, unscored=unscored, evaluator=INFO, key=key)  # type: ignore[arg-type]


def test_done_goes_by_key_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    rows = [
        verdict("a"),
        verdict("b", None, "timeout"),
        verdict("c", None, "budget"),
        verdict("d", None, "input"),
    ]
    path.write_bytes(b"".join(map(encode, rows)))
    with VerdictLog(path, INFO) as log:
        assert [log.done(id, lambda: "k") for id in "abcd"] == [True, True, False, False]
        assert not log.done("a", lambda: "other content")
    with VerdictLog(path, INFO, retry_unscored=True) as log:
        assert [log.done(id, lambda: "k") for id in "abcd"] == [True, False, False, False]


def test_new_verdict_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a", None, "timeout")) + encode(verdict("b")))
    path.chmod(0o640)
    with VerdictLog(path, INFO, retry_unscored=True) as log:
        log.append(verdict("a"))
        assert len(list(read_verdicts(path))) == 3
    assert [(v.id, v.unscored) for v in read_verdicts(path)] == [("b", None), ("a", None)]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_other_evaluators_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a")))
    with pytest.raises(
        UsageError, match="contains verdicts of another judge.*model m there, n now"
    ):
        VerdictLog(path, EvaluatorInfo("vlm", "1", "n", "sha256:0", {"frames": 1, "list": [1]}))
    assert path.read_bytes() == encode(verdict("a"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "replaced": lambda path: path.with_name("new").replace(path),
    "renamed": lambda path: path.rename(path.with_name("older.jsonl")),
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_loses_no_verdict(tmp_path: Path, change: str) -> None:
    path = tmp_path / "v.jsonl"
    (tmp_path / "new").write_bytes(encode(verdict("x")))
    log = VerdictLog(path, INFO)
    log.append(verdict("a"))
    CHANGES[change](path)
    with pytest.raises(UsageError, match="another program"):
        log.append(verdict("b"))
    with pytest.raises(UsageError, match=r"v\.jsonl\.bak"):
        log.close()
    assert (tmp_path / "v.jsonl.bak").read_bytes().startswith(encode(verdict("a")))
    assert encode(verdict("b")) in (tmp_path / "v.jsonl.bak").read_bytes()


@pytest.mark.parametrize(
    "fault", ['"score":7', '"usage":{"calls":"many"}', '"rewards":' + "[" * 100_000]
)
def test_resume_takes_up_what_can_be_read(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "v.jsonl"
    before = encode(verdict("a")).replace(b'"score":null', fault.encode())
    path.write_bytes(before)
    with pytest.raises(UsageError, match=r"v\.jsonl:1: not a verdict"):
        VerdictLog(path, INFO)
    assert path.read_bytes() == before
