"""Shows verdicts with their model calls, and lists judges."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from prill.config.registry import Option, list_options, load_object
from prill.config.shared import JUDGED, LabelFiles, VerdictFiles
from prill.config.values import Config
from prill.datasets.inputs import RecordingsConfig
from prill.errors import UsageError
from prill.evaluators.fitted.overlap import describe_relation, get_relation
from prill.evaluators.judge import write_page
from prill.evaluators.page import Page
from prill.evaluators.registry import JUDGES, JudgeWrappers, judge_options
from prill.io.joining import expect_same_runs, record_digest
from prill.io.store import read_labels, read_verdicts
from prill.io.tables import printable
from prill.models.budget import TRANSCRIPTS
from prill.models.registry import MODELS, asks_a_model
from prill.models.transcripts import Call, Transcript, read_transcript, transcript_folder
from prill.running import Printed, as_run
from prill.types import Findings, LabelRecord, Trajectory, Verdict


@dataclass(frozen=True, kw_only=True)
class ShowConfig(RecordingsConfig):
    """Configuration of `prill show`: show one verdict with its model calls."""

    id: Annotated[str, Meta(description="Id of the trajectory whose verdict to show.")]
    verdicts: VerdictFiles
    trajectories: Annotated[Sequence[str | Path], JUDGED] = ()
    labels: LabelFiles = ()
    transcripts: Annotated[str | Path | None, TRANSCRIPTS] = None


@dataclass(frozen=True, slots=True)
class VerdictEntry:
    """A verdict on the trajectory.

    Attributes:
        file: The verdict file.
        verdict: The verdict.
        transcript: The model calls for this verdict; None if there are none.
        silence: The reason why there is no transcript.
    """

    file: str
    verdict: Verdict
    transcript: Transcript | None
    silence: str


@dataclass(frozen=True)
class ShowResult(Printed):
    """The verdicts on one trajectory; printing them shows text without control characters.

    Attributes:
        verdicts: The verdicts, each with its model calls.
        trajectory: The trajectory, if a trajectory file was named.
        labels: Its labels in the named label files.
    """

    verdicts: tuple[VerdictEntry, ...]
    trajectory: Trajectory | None = None
    labels: tuple[LabelRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return {
            "verdicts": msgspec.to_builtins(list(self.verdicts)),
            "trajectory": msgspec.to_builtins(self.trajectory),
            "labels": msgspec.to_builtins(self.labels),
        }

    def __str__(self) -> str:
        lines = [] if self.trajectory is None else list(_trajectory_lines(self.trajectory))
        lines += [*map(_label_line, self.labels), *[""][: len(self.labels)]]
        for entry in self.verdicts:
            lines += _entry_lines(entry, self.trajectory)
        return "\n".join(lines)


@as_run(ShowConfig)
def show(config: ShowConfig) -> ShowResult:
    """Reads the verdicts on one trajectory, with their model calls.

    Args:
        config: The trajectory's id, and the files to search.

    Returns:
        The verdicts, each with its model calls.

    Raises:
        UsageError: No file has the id, or a verdict is on other contents of the trajectory.
        InputError: A file cannot be read.
    """
    entries, ids = [], dict[str, None]()
    for file in map(str, config.verdicts):
        verdict = None
        for row in read_verdicts(file):
            ids[row.id] = None
            verdict = row if row.id == config.id else verdict
        if verdict is not None:
            folder = Path(config.transcripts or transcript_folder(file))
            transcript = read_transcript(folder, verdict)
            entries.append(
                VerdictEntry(
                    file, verdict, transcript, "" if transcript else _silence(verdict, folder)
                )
            )
    if not entries:
        raise UsageError(
            f"no verdict has the id {config.id!r}{_nearest(config.id, ids)}",
            parameters=("verdicts",),
        )
    known = (label for file in config.labels for label in read_labels(file))
    labels = tuple(label for label in known if label.id == config.id)
    trajectory = _trajectory(config.id, config.runs()) if config.trajectories else None
    if trajectory is not None:
        digests = {config.id: record_digest(trajectory)}
        expect_same_runs((entry.verdict for entry in entries), digests)
        expect_same_runs(labels, digests)
    return ShowResult(tuple(entries), trajectory, labels)


@dataclass(frozen=True, kw_only=True)
class JudgesConfig(Config):
    """Configuration of `prill judges`: list the judges there are, or the options or a prompt of
    one.
    """

    judge: Annotated[
        str | None,
        Meta(description="Judge to show with its options (default: all judges, one per line)."),
    ] = None
    prompt: Annotated[
        bool, Meta(description="Print the judge's main prompt, ready to edit; `write` copies all.")
    ] = False
    write: Annotated[
        str | None,
        Meta(description="Copy the judge's page with its prompts, to begin one of your own."),
    ] = None

    def check(self) -> None:
        """Validates that a judge is named if its prompt or its page is requested."""
        if (self.prompt or self.write) and not self.judge:
            raise UsageError(
                "name the judge whose prompt to print, or whose page to copy",
                parameters=("judge",),
            )


@dataclass(frozen=True)
class JudgesResult(Printed):
    """The requested listing; printing it shows it as text.

    Attributes:
        text: The list, the options or the prompt.
        rows: The judges, or the options of one, a dictionary each; empty for a prompt.
    """

    text: str
    rows: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> Any:
        """Returns the judges, or the options of one; the text if it is a prompt."""
        return list(self.rows) or self.text

    def __str__(self) -> str:
        return self.text


@as_run(JudgesConfig)
def judges(config: JudgesConfig | None = None) -> JudgesResult:
    """Lists the available judges, or the options or a prompt of one, or copies its page.

    Args:
        config: The judge, and whether to return its prompt or copy its page; None: all judges.

    Raises:
        UsageError: There is no such judge or prompt, or a file is there already.
    """
    config = config or JudgesConfig()
    if config.judge is None:
        rows = [
            {"name": name, "what": what, "options": _names(name)}
            for name, what in JUDGES.names().items()
        ]
        return JudgesResult("\n".join(_listing()), tuple(rows))
    if config.write:
        files = write_page(_described(config.judge, "page"), config.write)
        return JudgesResult("\n".join(files))
    if config.prompt:
        return JudgesResult(_prompt(config.judge))
    options = [*judge_options(config.judge).values()]
    return JudgesResult("\n".join(_page(config.judge, options)), tuple(map(_record, options)))


def _silence(verdict: Verdict, folder: Path) -> str:
    """Returns why a verdict has no transcript."""
    if not folder.is_dir():
        why = (
            f"{folder} does not exist: no transcripts were kept, or they were moved (give "
            "their folder as transcripts)"
        )
    else:
        why = (
            f"{folder} has no transcript of this verdict: its run kept none, or the file is "
            "incomplete"
        )
    return why if verdict.usage.calls else f"the verdict needed no model call, or {why}"


def _trajectory(id: str, runs: Iterable[Trajectory]) -> Trajectory:
    ids = dict[str, None]()
    for run in runs:
        if run.id == id:
            return run
        ids[run.id] = None
    raise UsageError(
        f"no trajectory has the id {id!r}{_nearest(id, ids)}", parameters=("trajectories",)
    )


def _nearest(id: str, ids: Iterable[str]) -> str:
    matches = difflib.get_close_matches(id, list(ids), n=3, cutoff=0.4)
    return f"; the nearest: {', '.join(map(repr, matches))}" if matches else ""


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
    yield from _labelled("error", trajectory.error)
    yield ""


def _label_line(label: LabelRecord) -> str:
    outcomes = {True: "success", False: "failure", None: label.undecided or "undecided"}
    by = f", by {label.annotator}" if label.annotator else ""
    note = f": {label.note}" if label.note else ""
    return printable(f"label ({label.source}{by}): {outcomes[label.success]}{note}")


def _entry_lines(entry: VerdictEntry, trajectory: Trajectory | None) -> Iterator[str]:
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
    word = (
        f"unscored ({verdict.unscored})"
        if verdict.success is None
        else "success"
        if verdict.success
        else "failure"
    )
    score = "" if verdict.score is None else f", score {verdict.score:g}"
    yield printable(
        f"{verdict.id}: {word}{score}, by {info.name}{f' ({info.model})' if info.model else ''}"
    )
    yield from _labelled("reason", verdict.reason)
    if (relation := get_relation(verdict)) is not None:
        yield f"fitted: {describe_relation(relation)}"
    usd = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    yield (
        f"cost: {usage.calls} calls, {tokens}, {usage.images} images, {usd}, {verdict.seconds:g} s"
    )
    for step in verdict.steps or ():
        yield printable(
            f"  action {step.index + 1}: {step.label}, reward {step.reward:g}: {step.reason}"
        )
    for opinion in verdict.opinions or ():
        outcome = opinion.unscored or ("success" if opinion.success else "failure")
        score = "" if opinion.score is None else f", score {opinion.score:g}"
        yield printable(f"  {opinion.judge}: {outcome}{score}: {opinion.reason}")


def _step(index: int) -> str:
    """Returns the step of a state, from 1, as citations, reports and tables count; files count
    from 0.
    """
    return f"step {index + 1}"


def _finding_lines(findings: Findings) -> Iterator[str]:
    for number, point in enumerate(findings.key_points, 1):
        yield printable(f"  key point {number}: {point}")
    for criterion in findings.criteria:
        state = "" if criterion.step is None else f", by {_step(criterion.step)}"
        yield printable(
            f"  {criterion.met.replace('_', ' ')}{state}: {criterion.text} ({criterion.reason})"
        )
    for effect in findings.side_effects:
        yield printable(f"  side effect: {effect}")
    if findings.not_executable is not None:
        yield printable(f"  could not be done: {findings.not_executable}")
    for answer in findings.answers or ():
        state = "" if answer.step is None else f", by {_step(answer.step)}"
        value = json.dumps(answer.value, ensure_ascii=False)
        yield printable(f"  {answer.question} {value}{state} ({answer.reason})")
    if findings.official_label is not UNSET:
        outcomes = {True: "success", False: "failure", None: "none"}[findings.official_label]
        yield f"  by the authors' own rule: {outcomes}"
    for citation in findings.citations or ():
        status = citation.status.replace("_", " ")
        yield printable(f"  cites {citation.text}: {_step(citation.step)}, {status}")
    for frame in findings.frames:
        states = ", ".join(map(_step, frame.states))
        grade = " ".join(map(str, frame.scores)) or "not read"
        yield printable(f"  frame of {states}, grade {grade}: {frame.description}")


def _call_facts(call: Call) -> str:
    if call.cached:
        return f"{call.model}, nothing was sent: the reply came from the cache"
    attempts = f", {call.attempts} attempts" if call.attempts > 1 else ""
    finish = f", finish {call.finish_reason}" if call.finish_reason else ""
    return (
        f"{call.model}, {call.prompt_tokens:,} + {call.completion_tokens:,} tokens, "
        f"{call.seconds:g} s{attempts}{finish}"
    )


def _call_lines(call: Call) -> Iterator[str]:
    for turn in call.messages:
        yield f"  {turn.role}:"
        for part in turn.parts:
            if isinstance(part, str):
                yield from _block(part)
            else:
                digest = (
                    "unreadable"
                    if part.sha256 is None
                    else f"{part.size:,} bytes, sha256 {part.sha256}"
                )
                yield printable(f"    [image {part.path}, {digest}]")
    for name, text in (("thoughts", call.reasoning), ("reply", call.reply), ("error", call.error)):
        if text is not None:
            yield f"  {name}:"
            yield from _block(text)


def _block(text: str) -> Iterator[str]:
    """Yields untrusted text with each line behind a bar, so that it cannot imitate other output."""
    return (f"    | {printable(line)}" for line in text.splitlines() or [""])


def _labelled(label: str, text: str | None) -> Iterator[str]:
    if text:
        yield printable(f"{label}: {text}")


def _listing() -> Iterator[str]:
    for name, what in JUDGES.names().items():
        yield f"{name:<17} {what}"
        if options := _names(name):
            yield f"{'':<17}   {', '.join(options)}"
    yield ""
    yield (
        f"Options of every judge: {', '.join(list_options(JudgeWrappers))}. A judge of your "
        "own: a page (FILE.toml), module:Object or file.py:Object."
    )


def _names(name: str) -> list[str]:
    return list(judge_options(name))


def _page(name: str, options: list[Option]) -> Iterator[str]:
    maker = JUDGES.maker(name)
    yield f"{name}: {JUDGES.names().get(name, 'a judge of your own')}"
    yield ""
    yield from map(_line, options)
    if asks_a_model(maker):
        yield ""
        yield "Options of its model:"
        yield from (
            _line(option)
            for option in list_options(load_object(MODELS["NAME"][1])).values()
            if option.name != "model"
        )
    yield ""
    yield "Around it:"
    yield from map(_line, list_options(JudgeWrappers).values())


def _line(option: Option) -> str:
    default = (
        "required" if option.required else f"default {json.dumps(option.default, default=str)}"
    )
    return f"  {option.name:<15} {option.type_name:<22} {default:<22} {option.description}".rstrip()


def _record(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "type": option.type_name,
        "required": option.required,
        "default": json.loads(json.dumps(option.default, default=str)),
        "description": option.description,
    }


def _prompt(judge: str) -> str:
    page = _described(judge, "prompts")
    return page.load(page.main_prompts[0]).text.rstrip()


def _described(judge: str, what: str) -> Page:
    """Returns the page of a judge. Raises UsageError if it has none."""
    page = getattr(JUDGES.maker(judge), "page", None)
    if not isinstance(page, Page):
        raise UsageError(f"judge {judge!r} has no {what}")
    return page
