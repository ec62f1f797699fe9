"""Finds what a recording shows of the cause of a failed run, by rules, and groups runs by it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prill.actions.early_stop import EarlyStop
from prill.evaluators.claims import parse_stance
from prill.evaluators.evidence import endings
from prill.evaluators.fitted.overlap import OUT_OF_FOLD
from prill.types import Observation, Trajectory
from prill.ui.report.entries import Judge, ReportRow, cut

_WORDS: dict[str, str] = {
    "captcha": "a captcha at the end",
    "error_page": "an error page at the end",
    "loop": "the same action repeated again and again",
    "limit_reached": "the limit of steps or time was reached",
    "stopped_early": "the agent gave up",
    "judged": "no cause found; what a judge says",
}
_EXAMPLES = 20  # failed runs of a cause that are listed
_DETAIL = 300  # characters of a detail
_ALIKE = 0.05  # a reason that more of a judge's verdicts share tells of no run
_TEXT = 100_000  # characters of a state that are read
_CAPTCHA = re.compile(
    r"captcha|are you (?:a )?(?:human|robot)|not a robot|unusual traffic|"
    r"verify (?:that )?you are human",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\b(?:40[0134]|410|429|50[0-4]|52\d)\b[^\n]{0,40}\b(?:error|forbidden|not found|gateway|"
    r"unavailable|unauthorized|too many)|\berror(?: code)?[ :]{1,2}(?:40[0134]|50[0-4]|52\d)\b|"
    r"this site can['’]t be reached|you have been blocked|unexpected error|access denied|"
    r"internal server error|\berr_[a-z_]{4,}",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|,?\s(?=(?:but|however|although|though|yet)\b)")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|(?<!\w)'[^'\n]*'(?!\w)")
_DENIAL = re.compile(
    r"\b(?:not|no|none|neither|nor|without|lacks?|lacking|missing|cannot|never|nothing)\b|n['’]t\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What a recording shows of the cause of a failure.

    `step` is the index of the state that shows it, from 0; None if no single state does. `detail`
    is quoted from the page or the agent.
    """

    code: str
    step: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run in the list of its cause; `place` is the number of the step that shows the
    cause, from 1, and its name.
    """

    id: str
    goal: str
    place: tuple[int, str] | None
    detail: str


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """The failed runs of one cause; `runs` are the first of them."""

    words: str
    count: int
    runs: Sequence[FailedRun]


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed runs by cause, the most frequent first; runs without a cause come last.

    `judged` counts the runs with a decided label or a scored verdict.
    """

    judged: int
    failed: int
    causes: Sequence[CauseGroup]


def find_cause(trajectory: Trajectory) -> Cause | None:
    """Returns the cause of a failed run by the first rule that applies; None: no rule does."""
    states, steps = trajectory.observations, trajectory.steps
    texts = {index: _read(states[index]) for index in sorted(endings(trajectory), reverse=True)}
    for code, pattern in (("captcha", _CAPTCHA), ("error_page", _ERROR)):
        for index, text in texts.items():
            if (match := pattern.search(text)) is not None:
                return Cause(code, index, match[0])
    stop = EarlyStop()
    for count in range(1, len(steps) + 1):
        if (why := stop(steps[:count])) is not None:
            return Cause("loop", count - 1, cut(why, _DETAIL))
    if trajectory.metadata.get("truncated") is True:
        return Cause("limit_reached", len(states) - 1 if states else None)
    if trajectory.answer is not None and parse_stance(trajectory.answer)[0] == "admission":
        return Cause("stopped_early", None, cut(trajectory.answer, _DETAIL))
    return None


def _read(state: Observation) -> str:
    """Returns the text of a state, with those sentences of its caption that deny nothing."""
    sentences = _SENTENCE.split((state.caption or "")[:_TEXT])
    shown = [words for words in sentences if not _DENIAL.search(_QUOTED.sub("", words))]
    return "\n".join(((state.text or "")[:_TEXT], *shown))


def own_reasons(judges: Sequence[Judge]) -> dict[str, str]:
    """Returns why a judge calls a run a failure, by id; not reasons that many runs share."""
    found: dict[str, str] = {}
    for judge in judges:
        reasons = {
            id: verdict.reason.removesuffix(OUT_OF_FOLD).removesuffix("; ")
            for id, verdict in judge.verdicts.items()
            if verdict.success is False
        }
        counts = Counter(reasons.values())
        most = max(1, _ALIKE * len(judge.verdicts))
        for id, reason in reasons.items():
            if reason and counts[reason] <= most:
                found.setdefault(id, f"{judge.name}: {cut(reason, _DETAIL)}")
    return found


def group_failures(
    rows: Sequence[ReportRow], causes: Mapping[str, Cause | None], reasons: Mapping[str, str]
) -> Failures:
    """Groups the runs that their label calls a failure, or without a decided label any judge.

    Args:
        rows: The runs; those without a decided label and a scored verdict count nowhere.
        causes: What `find_cause` says of runs, by id; runs that are absent are left out of the
            groups.
        reasons: What `own_reasons` says of runs; told of those without a cause.

    Returns:
        The counts and the groups.
    """
    judged = 0
    failed: list[ReportRow] = []
    for row in rows:
        decided = {row.truth} & {"success", "failure"} or set(row.outcomes) & {"success", "failure"}
        judged += bool(decided)
        if "failure" in decided:
            failed.append(row)
    groups: dict[str, list[FailedRun]] = {}
    for row in failed:
        if row.id not in causes:
            continue
        cause = causes[row.id]
        if cause is None and row.id in reasons:
            cause = Cause("judged", None, reasons[row.id])
        place = None
        if cause is not None and cause.step is not None:
            number = cause.step + 1
            place = number, f"step {number}" if number <= row.steps else "final state"
        run = FailedRun(row.id, row.goal, place, "" if cause is None else cause.detail)
        groups.setdefault("" if cause is None else cause.code, []).append(run)
    return Failures(
        judged,
        len(failed),
        [
            CauseGroup(_WORDS.get(code, "no cause found"), len(runs), runs[:_EXAMPLES])
            for code, runs in sorted(
                groups.items(),
                key=lambda pair: (not pair[0], pair[0] == "judged", -len(pair[1])),
            )
        ],
    )
