"""The folder of transcripts: complete beside its verdicts, whatever becomes of the run, and never
in their way.
"""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import prill
from prill.captioner import GivenCaption
from prill.evaluators.judge import PageJudge
from prill.evaluators.scoring.scorer import score_files
from prill.io.store import read_verdicts
from prill.models.transcripts import (
    Call,
    ImageFile,
    Transcript,
    TranscriptLog,
    Turn,
    read_transcript,
    read_transcripts,
)
from prill.testing import ScriptedModel
from prill.types import EvaluatorInfo, Verdict

SUCCESS = "Thoughts: all there\nStatus: success"


def transcript(id: str, reply: str = "yes", *parts: str | ImageFile) -> Transcript:
    return Transcript(
        id,
        f"sha256:{id}",
        (Call(model="m", messages=(Turn("user", parts or ("?",)),), reply=reply),),
    )


def write(path: Path, count: int) -> str:
    rows = [
        {"id": f"t{i}", "task": {"goal": f"goal {i}"}, "final": {"caption": f"page {i}"}}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def judge(*replies: str | Exception) -> PageJudge:
    return prill.judge(
        "modular",
        model=ScriptedModel(replies) if replies else ScriptedModel(lambda messages: SUCCESS),
        captioner=GivenCaption(),
    )


def ids(folder: Path) -> list[str]:
    return [transcript.id for transcript in read_transcripts(folder)]


def test_record_is_on_disk_before_close(tmp_path: Path) -> None:
    log = TranscriptLog(tmp_path / "out/v.transcripts")
    assert not (tmp_path / "out").exists()
    for i in range(3):
        log.append(transcript(f"t{i}"))
        assert ids(log.folder) == [f"t{k}" for k in range(i + 1)]
    log.close()
    log.close()
    (part,) = log.folder.iterdir()
    assert gzip.decompress(part.read_bytes()).count(b"\n") == 3


def test_killed_process_loses_no_record(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom prill.models.transcripts import *\nlog = "
        "TranscriptLog(sys.argv[1])\n"
        "for i in range(50): log.append(Transcript(f't{i}', 'k', ()))\nos.kill(os.getpid(), "
        "signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert ids(tmp_path) == [f"t{i}" for i in range(50)]


@pytest.mark.parametrize("cut", [1, 5, 20, 100])
def test_torn_record_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    for run in "ab":
        log = TranscriptLog(tmp_path)  # never closed: killed
        for i in range(20):
            log.append(transcript(f"{run}{i}", os.urandom(8).hex()))
        part = max(tmp_path.iterdir())
        part.write_bytes(part.read_bytes()[:-cut])
    for run in "ab":
        whole = [id for id in ids(tmp_path) if id[0] == run]
        assert whole == [f"{run}{i}" for i in range(len(whole))]
        assert 20 - len(whole) <= 1 + cut // 30
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("id", ["t1", 'a"]}\n b', "é"])
def test_transcript_found_by_id_and_key(tmp_path: Path, id: str) -> None:
    with TranscriptLog(tmp_path) as log:
        for name, reply in [(id, "old"), (id + "x", "other"), (id, "new")]:
            log.append(transcript(name, reply))
    verdict = Verdict(id=id, success=True, evaluator=EvaluatorInfo("vlm", "1"), key=f"sha256:{id}")
    newest = read_transcript(tmp_path, verdict)
    assert newest is not None
    assert newest.calls[0].reply == "new"
    assert (
        read_transcript(
            tmp_path, Verdict(id=id, success=True, evaluator=verdict.evaluator, key="other")
        )
        is None
    )
    assert read_transcript(tmp_path / "nowhere", verdict) is None


async def test_run_on_full_disk_keeps_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(log: TranscriptLog, line: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TranscriptLog, "_write", full)
    path, out = write(tmp_path / "t.jsonl", 5), tmp_path / "v.jsonl"
    tally = await score_files([path], judge(), out, transcripts=tmp_path / "calls")
    assert (tally.succeeded, tally.untranscribed) == (5, 5)
    assert len(list(read_verdicts(out))) == 5


async def test_every_verdict_has_its_transcript(tmp_path: Path) -> None:
    path, out, folder = (
        write(tmp_path / "t.jsonl", 9),
        tmp_path / "v.jsonl",
        tmp_path / "v.transcripts",
    )
    await score_files([path], judge(), out, limit=4, transcripts=folder)
    await score_files([path], judge(), out, transcripts=folder)
    assert sorted(ids(folder)) == sorted(f"t{i}" for i in range(9))
    assert len(list(folder.iterdir())) == 2
    for verdict in read_verdicts(out):
        record = read_transcript(folder, verdict)
        assert record is not None
        (call,) = record.calls
        assert call.reply == SUCCESS
        assert any(
            f"page {verdict.id[1:]}" in part
            for part in call.messages[1].parts
            if isinstance(part, str)
        )


async def test_run_begun_again_sets_old_aside(tmp_path: Path) -> None:
    path, out, folder = (
        write(tmp_path / "t.jsonl", 2),
        tmp_path / "v.jsonl",
        tmp_path / "v.transcripts",
    )
    await score_files([path], judge(), out, transcripts=folder)
    await score_files([path], judge(), out, limit=1, resume=False, transcripts=folder)
    assert ids(folder) == ["t0"]
    assert len(list(folder.glob("*.bak"))) == 1
