"""`prill show`: one verdict with everything behind it: what was judged, what models were asked, and what they answered."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prill.errors import UsageError
from prill.evaluators.fitted.overlap import relation_of, relation_words
from prill.store import read_trajectories, read_verdicts
from prill.tables import printable
from prill.transcripts import Call, Transcript, transcript_folder, transcript_of
from prill.types import Findings, Trajectory, Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.usage = "prill show ID --verdicts V [V ...] [options]"
    parser.epilog = "Example: prill show shop-17 --verdicts out/vlm.jsonl --trajectories t.jsonl | less"
    parser.add_argument("id", metavar="ID", help="the trajectory whose verdict is wanted")
    parser.add_argument("--verdicts", nargs="+", required=True, metavar="V", help="verdict files: all that judged it are shown")
    parser.add_argument("--trajectories", nargs="+", default=[], metavar="T", help="trajectory files: goal, actions and answer")
    parser.add_argument("--transcripts", metavar="DIR", help="folder of transcripts (default: beside the verdict file)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A verdict of the trajectory, the file it stands in, and the calls behind it; `silence` says why there are none."""

    file: str
    verdict: Verdict
    transcript: Transcript | None
    silence: str


def run(args: argparse.Namespace) -> int:
    """Prints it; 0. Raises UsageError when no file has the id."""
    entries = _entries(args)
    trajectory = _trajectory(args.id, args.trajectories)
    if args.json:
        record = {"verdicts": msgspec.to_builtins(entries), "trajectory": msgspec.to_builtins(trajectory)}
        print(json.dumps(record, indent=1))  # in ASCII: a terminal obeys characters that JSON leaves as they are
        return 0
    if trajectory is not None:
        print("\n".join(_trajectory_lines(trajectory)))
    for entry in entries:
        print("\n".join(_entry_lines(entry)))
    return 0


def _entries(args: argparse.Namespace) -> list[_Entry]:
    entries, ids = [], dict[str, None]()
    for file in args.verdicts:
        verdict = None
        for row in read_verdicts(file):
            ids[row.id] = None
            verdict = row if row.id == args.id else verdict
        if verdict is not None:
            folder = Path(args.transcripts or transcript_folder(file))
            transcript = transcript_of(folder, verdict)
            entries.append(_Entry(file, verdict, transcript, "" if transcript else _silence(verdict, folder)))
    if not entries:
        raise UsageError(f"no verdict has the id {args.id!r}{_nearest(args.id, ids)}", parameters=("verdicts",))
    return entries


def _silence(verdict: Verdict, folder: Path) -> str:
    """Why a verdict has no transcript."""
    if not folder.is_dir():
        why = f"{folder} is not there: none were kept, or they were moved (--transcripts DIR says where)"
    else:
        why = f"{folder} holds none of this verdict: it was made by a run that kept none, or its file there is cut"
    return why if verdict.usage.calls else f"the verdict was made without a call to a model, or {why}"


def _trajectory(id: str, files: Iterable[str]) -> Trajectory | None:
    ids = dict[str, None]()
    for file in files:
        for item in read_trajectories(file, on_error="yield"):
            if isinstance(item, Trajectory) and item.id == id:
                return item
            ids[item.id] = None
    if ids:
        raise UsageError(f"no trajectory has the id {id!r}{_nearest(id, ids)}", parameters=("trajectories",))
    return None


def _nearest(id: str, ids: Iterable[str]) -> str:
    near = difflib.get_close_matches(id, list(ids), n=3, cutoff=0.4)
    return f"; the nearest: {', '.join(map(repr, near))}" if near else ""


def _trajectory_lines(trajectory: Trajectory) -> Iterator[str]:
    task = trajectory.task
    yield from _labelled("goal", task.goal)
    yield from _labelled("agent", trajectory.agent)
    yield "actions:"
    for number, step in enumerate(trajectory.steps, 1):
        screenshot = f"   [{step.observation.screenshot}]" if step.observation.screenshot else ""
        yield printable(f"  {number}: {step.action.text or step.action.kind}{screenshot}")
    if trajectory.final is not None and trajectory.final.screenshot:
        yield printable(f"  then   [{trajectory.final.screenshot}]")
    yield from _labelled("answer, as the agent claims", trajectory.answer)
    yield from _labelled("broken off", trajectory.error)
    yield ""


def _entry_lines(entry: _Entry) -> Iterator[str]:
    yield from _verdict_lines(entry.verdict)
    yield printable(f"file: {entry.file}")
    if entry.verdict.findings is not None:
        yield from _finding_lines(entry.verdict.findings)
    if entry.transcript is None:
        yield printable(f"transcript: {entry.silence}")
    else:
        calls = entry.transcript.calls
        for number, call in enumerate(calls, 1):
            yield ""
            yield printable(f"call {number} of {len(calls)}: {_call_facts(call)}")
            yield from _call_lines(call)
    yield ""


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    info, usage = verdict.evaluator, verdict.usage
    word = f"unscored ({verdict.unscored})" if verdict.success is None else "success" if verdict.success else "failure"
    score = "" if verdict.score is None else f", score {verdict.score:g}"
    yield printable(f"{verdict.id}: {word}{score}, by {info.name}{f' ({info.model})' if info.model else ''}")
    yield from _labelled("reason", verdict.reason)
    if (relation := relation_of(verdict)) is not None:
        yield f"fitted: {relation_words(relation)}"
    usd = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    yield f"cost: {usage.calls} calls, {tokens}, {usage.images} images, {usd}, {verdict.seconds:g} s"
    for step in verdict.steps or ():
        yield printable(f"  action {step.index + 1}: {step.label}, reward {step.reward:g}: {step.reason}")
    for opinion in verdict.opinions or ():
        outcome = opinion.unscored or ("success" if opinion.success else "failure")
        score = "" if opinion.score is None else f", score {opinion.score:g}"
        yield printable(f"  {opinion.judge}: {outcome}{score}: {opinion.reason}")


def _finding_lines(findings: Findings) -> Iterator[str]:
    for number, point in enumerate(findings.key_points, 1):
        yield printable(f"  key point {number}: {point}")
    for criterion in findings.criteria:
        state = "" if criterion.step is None else f", by state {criterion.step}"
        yield printable(f"  {criterion.met.replace('_', ' ')}{state}: {criterion.text} ({criterion.reason})")
    for effect in findings.side_effects:
        yield printable(f"  side effect: {effect}")
    if findings.not_executable is not None:
        yield printable(f"  could not be done: {findings.not_executable}")
    for frame in findings.frames:
        states = ", ".join(map(str, frame.states))
        grade = " ".join(map(str, frame.scores)) or "not read"
        yield printable(f"  frame of state {states}, grade {grade}: {frame.description}")


def _call_facts(call: Call) -> str:
    if call.cached:
        return f"{call.model}, nothing was sent: the reply to an equal call was kept"
    attempts = f", {call.attempts} attempts" if call.attempts > 1 else ""
    finish = f", finish {call.finish_reason}" if call.finish_reason else ""
    return f"{call.model}, {call.prompt_tokens:,} + {call.completion_tokens:,} tokens, {call.seconds:g} s{attempts}{finish}"


def _call_lines(call: Call) -> Iterator[str]:
    for turn in call.messages:
        yield f"  {turn.role}:"
        for part in turn.parts:
            if isinstance(part, str):
                yield from _block(part)
            else:
                digest = "unreadable" if part.sha256 is None else f"{part.size:,} bytes, sha256 {part.sha256}"
                yield printable(f"    [image {part.path}, {digest}]")
    for name, text in (("thoughts", call.reasoning), ("reply", call.reply), ("error", call.error)):
        if text is not None:
            yield f"  {name}:"
            yield from _block(text)


def _block(text: str) -> Iterator[str]:
    """A text of others, each line behind a bar: nothing in it can pass for a line of ours."""
    return (f"    | {printable(line)}" for line in text.splitlines() or [""])


def _labelled(label: str, text: str | None) -> Iterator[str]:
    if text:
        yield printable(f"{label}: {text}")
