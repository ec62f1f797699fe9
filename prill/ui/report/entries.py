"""The report's data: judges, and a row and a detail per trajectory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET

from prill.evaluators.agreement.comparison import slice_value
from prill.evaluators.labels import make_task
from prill.io.kinds import transcript_folder
from prill.io.store import BadLine, encode, read_verdicts
from prill.types import (
    Action,
    Citation,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Observation,
    Task,
    Trajectory,
    Usage,
    Verdict,
)
from prill.ui.report.pictures import ReportPicture

# characters of a state's text, a thought, an answer or a reason in the page
MAX_TEXT = 4000
_MAX_WORDS = 600  # characters of a goal in the list, or an action
_REASON = 160  # characters of a reason in the list, or of a citation
_MAX_CITATIONS = 200  # of a verdict
_LONGEST: dict[type[Any], int] = {Observation: MAX_TEXT, Action: _MAX_WORDS, Citation: _REASON}
Outcome = Literal["success", "failure", "unscored", "undecided", ""]
NO_EVALUATOR = EvaluatorInfo("", "")
_T = TypeVar("_T")
_decoder = msgspec.json.Decoder(Verdict)


@dataclass(frozen=True, slots=True)
class Judge:
    """One judge's verdicts by trajectory id; the last of each id counts.

    `name` is unique in a report.

    `transcripts` is the folder of model transcripts; None: there is none, or the page omits them.

    `packed` has whole verdicts, compressed: `verdicts` has only what lists and figures need of
    them. It is empty where `verdicts` are whole.

    `replaced` are the ids of verdicts that a later one replaced.
    """

    name: str
    info: EvaluatorInfo
    verdicts: dict[str, Verdict]
    transcripts: Path | None = None
    packed: dict[str, bytes] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)

    def whole(self, id: str) -> Verdict | None:
        """Returns the verdict on a trajectory with its steps, opinions and findings."""
        packed = self.packed.get(id)
        if packed is None:
            return self.verdicts.get(id)
        return replace(_decoder.decode(zlib.decompress(packed)), evaluator=self.info)

    def add(self, verdict: Verdict) -> None:
        """Adds a verdict of this judge, its largest parts compressed."""
        if verdict.id in self.verdicts:
            self.replaced.add(verdict.id)
        short = replace(verdict, evaluator=self.info)
        if not (verdict.steps or verdict.opinions or verdict.findings):
            self.verdicts[verdict.id] = short
            self.packed.pop(verdict.id, None)
            return
        whole = replace(verdict, evaluator=NO_EVALUATOR)
        self.packed[verdict.id] = zlib.compress(encode(whole), 1)
        findings = verdict.findings and Findings(citations=verdict.findings.citations)
        self.verdicts[verdict.id] = replace(short, steps=None, opinions=None, findings=findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The outcome of one of several attempts at a task.

    `lesson` was written after it; `problem` is why there is none, or the error that ended the
    attempt; `ended` says why no attempt follows, None if one does; `answer`: this attempt is the
    one that counts.
    """

    lesson: str | None = None
    problem: str | None = None
    ended: str | None = None
    answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One trajectory in the list.

    `truth` and `outcomes` (one for each judge, as `scores`, `usd`, `tokens` and the beginnings of
    `reasons`) are "" without a label or verdict. `usd` is the cost in US dollars, and `tokens` its
    number where dollars are unknown; both are None where neither is known.

    `parts` are its values of the keys that the list can be filtered by, None if it has none; see
    `slice_value`. `broken` is the error of a line that could not be read, which has no other data.
    `series` numbers the tasks that were retried, and `attempt` counts the attempts at one, from 0;
    None elsewhere. `file` is the short name of its file if there are several.
    """

    id: str
    goal: str
    site: str | None = None
    agent: str | None = None
    platform: str | None = None
    task: str = ""
    steps: int = 0
    truth: Outcome = ""
    outcomes: tuple[Outcome, ...] = ()
    scores: tuple[float | None, ...] = ()
    reasons: tuple[str, ...] = ()
    usd: tuple[float | None, ...] = ()
    tokens: tuple[int | None, ...] = ()
    parts: tuple[str | None, ...] = ()
    broken: str | None = None
    series: int | None = None
    attempt: int | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One trajectory in full.

    `pictures` has one entry for each state, None if no screenshot was recorded.
    """

    trajectory: Trajectory | None
    notes: str
    pictures: tuple[ReportPicture | None, ...]
    verdicts: tuple[Verdict | None, ...]
    labels: tuple[LabelRecord, ...]
    retry: Retry | None = None
    digest: str = ""  # of the whole trajectory, on a served page


def read_judges(
    paths: Sequence[str | os.PathLike[str]], *, transcripts: bool = True
) -> list[Judge]:
    """Reads the judges of some verdict files, in order.

    The `transcripts` next to the files are included unless disabled.

    Raises UsageError or InputError if a file cannot be read.
    """
    columns: dict[tuple[str, bytes], Judge] = {}
    for path in dict.fromkeys(os.fspath(path) for path in paths):
        for verdict in read_verdicts(path):
            # A file that was continued with changed settings holds two judges.
            key = path, encode(verdict.evaluator)
            if key not in columns:
                folder = transcript_folder(path) if transcripts else None
                columns[key] = Judge("", verdict.evaluator, {}, folder)
            columns[key].add(verdict)
    names = judge_names([(path, judge.info) for (path, _), judge in columns.items()])
    return [replace(judge, name=name) for name, judge in zip(names, columns.values(), strict=True)]


def judge_names(columns: Sequence[tuple[str, EvaluatorInfo]]) -> list[str]:
    """Returns names for judges, each of a verdict file.

    They are as short as uniqueness allows: the evaluator's name, then with its model, version,
    prompt, file, and a number.
    """
    parts = [
        (
            info.name,
            info.model,
            f"v{info.version}",
            info.prompt and info.prompt.split(":")[-1][:8],
            Path(path).stem,
            f"#{n}",
        )
        for n, (path, info) in enumerate(columns, 1)
    ]
    for size in range(1, 7):
        names = [" · ".join(part for part in row[:size] if part) for row in parts]
        if len(set(names)) == len(names):
            break
    return names


def row(
    item: Trajectory | BadLine,
    judges: Sequence[Judge],
    labelled: bool,
    truth: bool | None,
    keys: Sequence[str] = (),
    file: str | None = None,
) -> ReportRow:
    """Returns the row of a trajectory, its `parts` by `keys`; the key `file` is that of its file.

    `truth` counts only if it is `labelled`; None is then undecided.
    """
    outcome = truth_outcome(truth) if labelled else ""
    if isinstance(item, BadLine):
        made = ReportRow(
            id=item.id,
            goal="(this line could not be read)",
            truth=outcome,
            parts=(None,) * len(keys),
            broken=item.message,
        )
    else:
        made = ReportRow(
            id=item.id,
            goal=cut(item.task.goal, _MAX_WORDS),
            site=item.task.site,
            agent=item.agent,
            platform=item.task.platform,
            task=make_task(item),
            steps=len(item.steps),
            truth=outcome,
            parts=tuple(
                part and cut(part, _MAX_WORDS)
                for part in (
                    file if file and key == "file" else slice_value(item, key) for key in keys
                )
            ),
            file=file,
        )
    return judged_row(made, judges)


def judged_row(made: ReportRow, judges: Sequence[Judge]) -> ReportRow:
    """Returns the row with these judges' verdicts on its trajectory."""
    verdicts = [judge.verdicts.get(made.id) for judge in judges]
    return replace(
        made,
        outcomes=tuple(
            "" if verdict is None else _outcome(verdict.success, "unscored") for verdict in verdicts
        ),
        scores=tuple(
            None if verdict is None or verdict.score is None else round(verdict.score, 3)
            for verdict in verdicts
        ),
        reasons=tuple("" if verdict is None else _first_words(verdict) for verdict in verdicts),
        usd=tuple(None if verdict is None else _dollars(verdict.usage) for verdict in verdicts),
        tokens=tuple(None if verdict is None else _tokens(verdict.usage) for verdict in verdicts),
    )


def _dollars(usage: Usage) -> float | None:
    """Returns the cost; None if it is unknown, or nothing says that a model was called."""
    if usage.usd is None or not (usage.usd or usage.calls):
        return None
    return float(f"{usage.usd:.3g}")


def _tokens(usage: Usage) -> int | None:
    """Returns the number of tokens where the cost in dollars is unknown."""
    tokens = usage.prompt_tokens + usage.completion_tokens
    return tokens or None if _dollars(usage) is None else None


def truth_outcome(truth: bool | None) -> Outcome:
    """Returns the outcome of a label; None is undecided."""
    return _outcome(truth, "undecided")


def _first_words(verdict: Verdict) -> str:
    words = " ".join((verdict.unscored or verdict.reason).split())
    return words if len(words) <= _REASON else f"{words[: _REASON - 1]}…"


def file_names(paths: Sequence[str]) -> dict[str, str]:
    """Returns a short, unique name for each of several files, without the ends that all share."""
    parts = {path: Path(path).parts for path in paths}
    if len(set(parts.values())) < 2:
        return {}
    while len({own[-1] for own in parts.values()}) == 1 and all(
        len(own) > 1 for own in parts.values()
    ):
        parts = {path: own[:-1] for path, own in parts.items()}
    for size in range(1, max(map(len, parts.values())) + 1):
        names = {path: "/".join(own[-size:]) for path, own in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: path for path in paths}


def get_series(
    item: Trajectory | BadLine, file: str | None = None
) -> tuple[tuple[object, ...], int] | None:
    """Returns the key that a task's attempts share, and the attempt's number from 0.

    The result is None for a trajectory that is not a retry attempt. Attempts share a file.
    """
    if isinstance(item, BadLine) or not isinstance(attempt := item.metadata.get("attempt"), int):
        return None
    seed = str(item.metadata.get("seed"))
    return (make_task(item), item.task.goal, item.agent, seed, file), attempt


def detail(
    item: Trajectory | BadLine,
    judges: Sequence[Judge],
    labels: Sequence[LabelRecord],
    picture: Callable[[str], ReportPicture],
    retry: Retry | None = None,
    longest: int = MAX_TEXT,
) -> Detail:
    """Returns the detail of a trajectory, long texts truncated: those of its goal and agent to
    `longest` characters.
    """
    verdicts = tuple(_short_verdict(judge.whole(item.id)) for judge in judges)
    noted = _short(tuple(labels), MAX_TEXT)
    if isinstance(item, BadLine):
        return Detail(trajectory=None, notes="", pictures=(), verdicts=verdicts, labels=noted)
    return Detail(
        trajectory=_shortened(item, longest),
        notes=cut(msgspec.json.format(encode(item.metadata), indent=2).decode(), MAX_TEXT)
        if item.metadata
        else "",
        pictures=tuple(
            picture(state.screenshot) if state.screenshot else None for state in item.observations
        ),
        verdicts=verdicts,
        labels=noted,
        retry=_short(retry, MAX_TEXT),
    )


def cut(text: str, most: int) -> str:
    """Truncates a text to `most` characters, with a note of how much is left out."""
    return (
        text
        if len(text) <= most
        else f"{text[:most]}\n… ({len(text) - most:,} more characters are not in this page)"
    )


def _outcome(success: bool | None, otherwise: Outcome) -> Outcome:
    return otherwise if success is None else "success" if success else "failure"


def _shortened(trajectory: Trajectory, longest: int) -> Trajectory:
    """Returns the trajectory as a page shows it: of earlier turns the goal and the answer, and no
    path of an image, which would expose details of the disk.
    """
    turns = tuple(
        Trajectory(id="", task=Task(goal=turn.task.goal), answer=turn.answer)
        for turn in trajectory.task.earlier
    )
    steps = tuple(
        replace(step, observation=replace(step.observation, screenshot=None))
        for step in trajectory.steps
    )
    shown = replace(
        trajectory,
        task=replace(trajectory.task, earlier=turns),
        steps=steps,
        final=trajectory.final and replace(trajectory.final, screenshot=None),
        metadata={},
    )
    return _short(shown, longest)


def _short_verdict(verdict: Verdict | None) -> Verdict | None:
    if verdict is None:
        return None
    findings = verdict.findings
    if findings is not None:
        cited = findings.citations[:_MAX_CITATIONS] if findings.citations else UNSET
        findings = replace(findings, citations=cited)
    # the judge's own entry in the page identifies it
    bare = replace(verdict, findings=findings, evaluator=NO_EVALUATOR, key="", record=UNSET)
    return _short(bare, MAX_TEXT)


def _short(record: _T, longest: int) -> _T:
    """Returns a record with all texts in it truncated: to the characters of `_LONGEST` for its
    type, else to `longest`. Ids stay whole.
    """
    return cast(_T, _truncated(record, longest))


def _truncated(value: object, longest: int) -> object:
    if isinstance(value, str):
        return cut(value, longest)
    if isinstance(value, tuple):
        return tuple(_truncated(part, longest) for part in value)
    if isinstance(value, dict):
        return {cut(key, longest): _truncated(part, longest) for key, part in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    longest = _LONGEST.get(type(value), longest)
    parts = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "id"}
    short = {name: _truncated(part, longest) for name, part in parts.items()}
    return value if short == parts else replace(value, **short)
