"""What fitted judges read of a trajectory: numbers about how the run went, numbers about its texts, and sets of words.

Nothing here names the agent, the site or the benchmark, and nothing looks at screenshots: in recordings whose frames
somebody selected, their presence gives the outcome away. Kinds of actions, lengths and words carry over to other sites.

The one part of the free-form `metadata` that is read is `truncated` or, without it, `terminated`: whether a limit or the
episode itself ended the run. Without both, a run counts as cut off unless its last action is `stop` or `answer`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from math import log1p

from prill.types import Observation, Trajectory

# A name is `theme/detail`; reasons speak of themes.
_KINDS = (
    "click", "type", "press", "select", "scroll", "swipe", "back", "home", "goto", "focus_tab", "wait", "hover", "open",
    "message", "other",
)  # fmt: skip
TELEMETRY = (
    *(f"length/{n}" for n in ("steps", "log steps", "at most 3", "at most 6", "at most 9", "15 or more", "25 or more")),
    *(f"ending/{n}" for n in ("cut off", "by an answer", "by stopping", "by neither", "environment error")),
    *(f"repetition/{n}" for n in ("share repeated", "log repeated", "different", "most of one", "longest run", "run of 3")),
    "repetition/different among the last 5",
    *(f"pace when not cut off/{n}" for n in ("15 or more", "log steps", "share repeated", "run of 3")),
    *(f"actions/{kind}, {n}" for kind in _KINDS for n in ("share", "log count")),
    "goal/log characters",
)
CLAIMS = ("claims/log characters of the answer", "claims/log characters of a thought")
CUES = (
    *(f"state/{n}" for n in ("goal words in the last", "goal words in the latest")),
    *(f"goal/{n}" for n in ("question", "question answered", "order finished", "numbers", "quotes", "words", "words typed")),
)
# What a few words more on a page can tip either way: left out where only evidence counts.
PAGE_CUES = (
    *(f"state/{n}" for n in ("doubts in the last", "no doubts in the last", "doubts before the last")),
    *(f"state/{n}" for n in ("log words", "doubts for each 10 words", "one before without doubts", "unchanged")),
)
ANSWER_CUES = tuple(f"answer/{n}" for n in ("goal words", "doubts", "words seen in the latest states"))
# Speech is a claim, and so may be whatever has an unknown kind: only that it happened counts, never its words.
_WORDLESS = frozenset({"answer", "stop", "message", "other"})
_KNOWN = frozenset(_KINDS) | _WORDLESS
_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)  # the same in ASCII text, and faster
_COMMON = frozenset(
    _WORD.findall(
        "the and for are was with from its this that which what how who when where you your does can all any one give please "
        "into than then them has have there using use"
    )
)
_DOUBTS = frozenset(
    _WORD.findall(
        "not no cannot lack lacks lacking without missing unable unclear fail fails failed error empty however only neither "
        "nor none"
    )
)
_QUESTIONS = ("what", "which", "who", "how", "when", "where", "tell", "find", "list", "show", "give")
_TYPING = frozenset({"type", "select", "goto", "press"})
# Of a state's text at most this many characters are read, the beginning and the end, and of the states the latest two:
# thousands of trajectories a second, and a page of any length costs the same.
_HEAD, _TAIL, _STATES = 1500, 500, 2
# Counts beyond this are alike: a model fitted on runs of 30 steps stays sane on one of 1,000.
_MOST = 50


@dataclass(frozen=True, slots=True)
class Reading:
    """One trajectory as numbers, in the order of `names`, and as sets of words by the text that they come from."""

    numbers: list[float]
    words: dict[str, set[str]]
    evidence_only: bool


def names(kind: str, evidence_only: bool) -> tuple[str, ...]:
    """The names of the numbers that `read` gives. `kind` is student or prior."""
    claims = () if evidence_only else CLAIMS
    if kind == "prior":
        return (*TELEMETRY, *claims)
    return (*TELEMETRY, *claims, *CUES, *(() if evidence_only else (*PAGE_CUES, *ANSWER_CUES)))


def read(trajectory: Trajectory, kind: str, evidence_only: bool) -> Reading:
    """The features of a trajectory with at least one step.

    With `evidence_only` nothing depends on thoughts, on the answer, or on the words of messages and final actions.
    """
    numbers = _telemetry(trajectory)
    if not evidence_only:
        thought = sum(len(step.thought or "") for step in trajectory.steps) / len(trajectory.steps)
        numbers += (log1p(len(trajectory.answer or "")), log1p(thought))
    if kind == "prior":
        return Reading(numbers, {}, evidence_only)
    states = [_words(_text(observation)) for observation in trajectory.observations[-_STATES:]]
    last = states[-1]
    words = {"state": set(last)}
    goal = {w for w in _words(trajectory.task.goal) if (len(w) > 2 or w.isdigit()) and w not in _COMMON}
    page_words = set().union(*states)
    numbers += _cues(trajectory, states, goal, page_words)
    if not evidence_only:
        answer = words["answer"] = set(_words(_cut(trajectory.answer or "")))
        new = answer - goal - _COMMON
        numbers += _page_cues(states)
        numbers += (
            len(goal & answer) / max(1, len(goal)),
            float(not _DOUBTS.isdisjoint(answer)),
            len(new & page_words) / max(1, len(new)),
        )
    return Reading(numbers, words, evidence_only)


def cut_off(trajectory: Trajectory) -> bool:
    """Whether the run was ended by a limit, not by the agent or the task; see the module for what tells."""
    truncated, terminated = trajectory.metadata.get("truncated"), trajectory.metadata.get("terminated")
    if isinstance(truncated, bool):
        return truncated
    return terminated is not True and not (trajectory.steps and trajectory.steps[-1].action.is_final)


def _telemetry(trajectory: Trajectory) -> list[float]:
    signatures = []
    kinds = []
    for step in trajectory.steps:
        action = step.action
        kind = action.kind if action.kind in _KNOWN else "other"
        kinds.append(kind)
        signatures.append(
            kind if kind in _WORDLESS else (kind, action.text, action.target, action.value, action.point, action.end_point)
        )
    n = len(kinds)
    by_kind, by_signature = Counter(kinds), Counter(signatures)
    different, most = len(by_signature), max(by_signature.values())
    repeated = n - different
    run = max(sum(1 for _ in same) for _, same in groupby(signatures))
    cut = cut_off(trajectory)
    steps, share, last = log1p(n), repeated / n, kinds[-1]
    numbers: list[float] = [
        min(n, _MOST), steps, n <= 3, n <= 6, n <= 9, n >= 15, n >= 25,
        cut, last == "answer", last == "stop", last not in ("answer", "stop"), trajectory.error is not None,
        share, log1p(repeated), min(different, _MOST), min(most, _MOST), min(run, _MOST), run >= 3, len(set(signatures[-5:])),
    ]  # fmt: skip
    numbers += (0.0, 0.0, 0.0, 0.0) if cut else (n >= 15, steps, share, run >= 3)
    for kind in _KINDS:
        count = by_kind[kind]
        numbers += (count / n, log1p(count)) if count else (0.0, 0.0)
    numbers.append(log1p(len(trajectory.task.goal)))
    return numbers


def _cues(trajectory: Trajectory, states: list[list[str]], goal: set[str], page_words: set[str]) -> tuple[float, ...]:
    many = max(1, len(goal))
    goal_text = trajectory.task.goal.lower()
    question = "?" in goal_text or goal_text.startswith(_QUESTIONS)
    finished = trajectory.steps[-1].action.is_final
    typed_text = " ".join([s.action.value for s in trajectory.steps if s.action.kind in _TYPING and s.action.value])
    return (
        len(goal.intersection(states[-1])) / many,
        len(goal & page_words) / many,
        question,
        question and finished,
        finished and not question,
        log1p(sum([word.isdigit() for word in goal])),
        log1p(goal_text.count('"')),
        log1p(len(goal)),
        len(goal.intersection(_words(_cut(typed_text)))) / many,
    )


def _page_cues(states: list[list[str]]) -> tuple[float, ...]:
    doubts = list(map(_doubts, states))
    last, before, now = states[-1], doubts[:-1], doubts[-1]
    return (
        log1p(now),
        now == 0,
        log1p(sum(before) / max(1, len(before))),
        log1p(len(last)),
        10 * now / max(1, len(last)),
        0 in before,
        len(states) > 1 and last == states[-2],
    )


def _doubts(words: list[str]) -> int:
    return sum(map(_DOUBTS.__contains__, words))


def _text(observation: Observation) -> str:
    return _cut(observation.caption or observation.text or "")


def _words(text: str) -> list[str]:
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())


def _cut(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} {text[-_TAIL:]}"
