"""Extracts the features of fitted judges: statistics of the run and its texts, and sets of words.

No feature names the agent, the site or the benchmark. No feature uses screenshots, because their
presence leaks the outcome in recordings with hand-selected frames. Kinds of actions, lengths and
words generalise to other sites.

From the free-form `metadata`, only `truncated` or, without it, `terminated` is read: whether a
limit or the episode itself ended the run. Without both, a run counts as cut off unless its last
action is `stop` or `answer`.

There are two feature sets for students. The wide set is for agents that do not try to deceive the
judge. The narrow set, for evidence-only and hardened judges, is robust to manipulation: features
that an agent can increase at no cost (steps, words) can only lower the score, and the ending of a
run counts only if the environment ended it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import groupby
from math import fsum, log1p, sqrt
from operator import mul

from prill.evaluators.fitted.values import ENTERING, clicked, last_entries, value_spans
from prill.types import Observation, Trajectory

# A feature name is `theme/detail`; reasons mention themes.
_KINDS = (
    "click", "type", "press", "select", "scroll", "swipe", "back", "home", "goto", "focus_tab", "wait", "hover", "open",  # noqa: E501
    "message", "other",
)  # fmt: skip
TELEMETRY = (
    *(
        f"length/{n}"
        for n in (
            "steps",
            "log steps",
            "at most 3",
            "at most 6",
            "at most 9",
            "15 or more",
            "25 or more",
        )
    ),
    *(
        f"ending/{n}"
        for n in ("cut off", "by an answer", "by stopping", "by neither", "environment error")
    ),
    *(
        f"repetition/{n}"
        for n in (
            "share repeated",
            "log repeated",
            "different",
            "most of one",
            "longest run",
            "run of 3",
        )
    ),
    "repetition/different among the last 5",
    *(
        f"pace when not cut off/{n}"
        for n in ("15 or more", "log steps", "share repeated", "run of 3")
    ),
    *(f"actions/{kind}, {n}" for kind in _KINDS for n in ("share", "log count")),
    "goal/log characters",
)
CUES = (
    *(f"claims/log characters of {n}" for n in ("the answer", "a thought")),
    *(f"state/{n}" for n in ("goal words in the last", "goal words in the latest")),
    *(
        f"goal/{n}"
        for n in (
            "question",
            "question answered",
            "order finished",
            "numbers",
            "quotes",
            "words",
            "words typed",
        )
    ),
    *(
        f"state/{n}"
        for n in ("doubts in the last", "no doubts in the last", "doubts before the last")
    ),
    *(
        f"state/{n}"
        for n in ("log words", "doubts for each 10 words", "one before without doubts", "unchanged")
    ),
)
# Values of the request (quotations, numbers, names) against what was entered and clicked.
VALUE_CUES = tuple(
    f"values asked for/{n}"
    for n in (
        "acted on",
        "in the last entries",
        "all in the last entries",
        "entries without others",
        "entries with others",
        "entries with words seen nowhere",
        "clicked elements named",
        "last click named",
        "last click not named",
        "last click submits",
    )
)
ANSWER_CUES = tuple(
    f"answer/{n}" for n in ("goal words", "doubts", "words seen in the latest states")
)
# The narrow set: features that only the task and the environment determine, and those that can only
# lower the score.
BEYOND_THE_AGENT = (
    *(f"ending/by the environment{n}" for n in ("", ", a question")),
    *(f"goal/{n}" for n in ("question", "log characters", "numbers", "quotes", "words")),
)
AGAINST = (
    *(f"trouble/{n}" for n in ("environment error", "words of error pages")),
    *(f"length/{n}" for n in ("log steps", "7 or more", "10 or more", "15 or more", "25 or more")),
    *(f"repetition/{n}" for n in ("log repeated", "most of one", "longest run", "run of 3")),
    *(f"actions/{kind}, log count" for kind in _KINDS),
)
# For judges that also read claims: a claim too short to be verified.
SILENCE = ("claims/ended by the agent with less than 4 words",)
# Messages are claims, and actions of unknown kind may be. Only their occurrence counts, not their
# text.
_WORDLESS = frozenset({"answer", "stop", "message", "other"})
_KNOWN = frozenset(_KINDS) | _WORDLESS
_WORD = re.compile(r"\w+")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)  # equivalent for ASCII text, and faster
_COMMON = frozenset(
    _WORD.findall(
        "the and for are was with from its this that which what how who when where you your does "
        "can all any one give please into than then them has have there using use"
    )
)
_DOUBTS = frozenset(
    _WORD.findall(
        "not no cannot lack lacks lacking without missing unable unclear fail fails failed error "
        "empty however only neither nor none"
    )
)
# Words of error pages. Such a page lacks the words that would count against success.
_ERRORS = frozenset(
    _WORD.findall(
        "401 403 404 408 410 429 500 502 503 504 again blank blocked broken captcha cloudflare "
        "crashed denied dns err error expired failed forbidden found gateway invalid loading "
        "maintenance nginx offline oops refused refresh reload reset robot server sorry timed "
        "timeout unavailable unexpected unreachable wrong"
    )
)
_QUESTIONS = (
    "what", "which", "who", "how", "when", "where", "tell", "find", "list", "show", "give",
)  # fmt: skip
_TYPING = frozenset({"type", "select", "goto", "press"})
# Maximum number of characters read from the start and end of a text; guards reject longer states
# (`guard.py`).
MAX_CHARACTERS = 100_000
_STATES = 2
_SUBMITTING = frozenset(
    _WORD.findall(
        "submit save send order buy purchase pay book reserve confirm apply post publish create "
        "add update delete remove checkout sign login register continue done ok search"
    )
)
# Minimum number of distinct words in a substantial answer.
_MIN_SAID = 4
# Counts are capped here, so that a model fitted on runs of 30 steps works on a run of 1,000.
_MAX_COUNT = 50


# Lookalike letters of other alphabets (the common ones of Unicode's confusables), and invisible
# characters.
_LOOK_ALIKES = {
    "a": "аɑα", "b": "ЬьƄƅβвᏏ", "c": "сϲᴄ", "d": "ԁɗժ", "e": "еҽєɛεэ", "f": "ƒғ", "g": "ɡցǥ", "h": "һհнħ", "i": "іıιɩ",  # noqa: E501
    "j": "јϳʝ", "k": "кκĸ", "l": "ӏłɭ", "m": "мʍᴍ", "n": "ոпηռɴ", "o": "оοօσөø", "p": "рρþ", "q": "ԛգզ", "r": "гʀᴦɼ",  # noqa: E501
    "s": "ѕʂꜱ", "t": "тτŧᴛ", "u": "υսцʋᴜ", "v": "νѵᴠ", "w": "ԝωшաᴡ", "x": "хχ", "y": "уγүყʏ", "z": "ᴢʐƶ",  # noqa: E501
    "A": "АΑᎪ", "B": "ВΒᏴ", "C": "СϹᏟ", "D": "Ꭰ", "E": "ЕΕᎬ", "F": "ҒϜ", "G": "Ꮐ", "H": "НΗᎻ", "I": "ІΙӀ", "J": "ЈᎫ",  # noqa: E501
    "K": "КΚᏦ", "L": "Ꮮ", "M": "МΜᎷ", "N": "Ν", "O": "ОΟ", "P": "РΡᏢ", "Q": "Ԛ", "R": "Ꮢ", "S": "ЅᏚ", "T": "ТΤᎢ", "U": "Ս",  # noqa: E501
    "V": "ѴᏙ", "W": "ԜᎳ", "X": "ХΧ", "Y": "УΥҮ", "Z": "ΖᏃ",
}  # fmt: skip
_COMBINING = (
    (0x300, 0x370),
    (0x483, 0x48A),
    (0x1AB0, 0x1B00),
    (0x1DC0, 0x1E00),
    (0x20D0, 0x2100),
    (0xFE20, 0xFE30),
)
_UNSEEN = (
    (0xAD, 0xAE), (0x34F, 0x350), (0x61C, 0x61D), (0x115F, 0x1161), (0x17B4, 0x17B6), (0x180B, 0x1810), (0x200B, 0x2010),  # noqa: E501
    (0x202A, 0x202F), (0x2060, 0x2070), (0x3164, 0x3165), (0xFE00, 0xFE10), (0xFEFF, 0xFF00), (0xFFA0, 0xFFA1),  # noqa: E501
    (0xFFF9, 0xFFFC), (0xE0000, 0xE0200),
)  # fmt: skip
_FOLDED: dict[int, str | None] = {
    **{ord(other): letter for letter, others in _LOOK_ALIKES.items() for other in others},
    **{code: None for first, after in (*_COMBINING, *_UNSEEN) for code in range(first, after)},
}
# Text without these characters needs no folding: it has only unaccented Latin letters and
# typographic punctuation.
_TO_FOLD = re.compile(
    "[^\x00-\x7f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u21ff\u2500-\u25ff]"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The features of one trajectory: numbers in the order of `names`, and word sets by source
    text.

    `characters` is the length of the last state's text, or 0 if it has no words.
    """

    numbers: list[float]
    words: dict[str, set[str]]
    characters: int = 0


@dataclass(frozen=True, slots=True)
class Scores:
    """A logit and its parts."""

    logit: float
    numbers: list[float]  # the contribution of each number
    # for each text, the name, the contribution and the set of its known words
    words: list[tuple[str, float, Set[str]]]


class Linear:
    """The linear model: a weighted sum of the numbers and of the known words of each text.

    The sum over a text's words is divided by the square root of their count.

    Words that only lower the score (`against`) are summed without this division, so that other
    words cannot weaken them.
    """

    def __init__(
        self,
        bias: float,
        features: Iterable[tuple[float, float]],
        words: Mapping[str, Mapping[str, float]],
        *,
        against: bool = False,
    ) -> None:
        pairs = list(features)
        self.weights = [weight for weight, _ in pairs]
        self.offsets = [weight * centre for weight, centre in pairs]
        self.bias = bias - fsum(self.offsets)
        self.words = words
        self._against = against

    def __call__(self, reading: Reading) -> Scores:
        """Returns the logit and its parts. The sums are exact, whatever the order of words."""
        numbers = list(map(mul, self.weights, reading.numbers))
        total = [self.bias, fsum(numbers)]
        words: list[tuple[str, float, Set[str]]] = []
        for text, weights in self.words.items():
            if known_words := weights.keys() & reading.words[text]:
                adds = fsum(map(weights.__getitem__, known_words)) / (
                    1.0 if self._against else sqrt(len(known_words))
                )
                total.append(adds)
                words.append((text, adds, known_words))
        return Scores(fsum(total), numbers, words)


def names(kind: str, evidence_only: bool, narrow: bool) -> tuple[str, ...]:
    """Returns the names of the numbers that `read` returns.

    `kind` is student or prior; only a student's set can be narrow.
    """
    if kind == "prior":
        return TELEMETRY
    if narrow:
        return (*BEYOND_THE_AGENT, *AGAINST, *(() if evidence_only else SILENCE))
    return (*TELEMETRY, *CUES, *VALUE_CUES, *ANSWER_CUES)


def texts(kind: str, evidence_only: bool, narrow: bool) -> tuple[str, ...]:
    """Returns the names of the texts whose words `read` returns."""
    if kind == "prior":
        return ()
    return (
        "state",
        *(("state before",) if narrow else ()),
        *(() if evidence_only else ("answer",)),
    )


def read(trajectory: Trajectory, kind: str, evidence_only: bool, hardened: bool = False) -> Reading:
    """Returns the features of a trajectory with at least one step.

    With `evidence_only`, no feature depends on thoughts, or on the text of the answer, of messages
    or of final actions.
    """
    if kind == "prior":
        return Reading(_telemetry(trajectory), {})
    latest = [_text(observation) for observation in trajectory.observations[-_STATES:]]
    states = list(map(_words, latest))
    characters = len(latest[-1]) if latest[-1].strip() else 0
    words = {"state": set(states[-1])}
    if evidence_only or hardened:
        words["state before"] = set(states[-2]) if len(states) > 1 else set()
        numbers = _narrow(trajectory, words["state"])
        if not evidence_only:
            words["answer"] = set(_words(trajectory.answer or ""))
            numbers.append(
                trajectory.steps[-1].action.is_final and len(words["answer"]) < _MIN_SAID
            )
        return Reading(numbers, words, characters)
    answer = words["answer"] = set(_words(trajectory.answer or ""))
    goal = _goal_words(trajectory)
    page_words = set().union(*states)
    numbers = _telemetry(trajectory)
    thought = sum(len(step.thought or "") for step in trajectory.steps) / len(trajectory.steps)
    numbers += (log1p(len(trajectory.answer or "")), log1p(thought))
    numbers += _cues(trajectory, states, goal, page_words)
    numbers += _page_cues(states)
    numbers += _value_cues(trajectory)
    new = answer - goal - _COMMON
    numbers += (
        len(goal & answer) / max(1, len(goal)),
        float(not _DOUBTS.isdisjoint(answer)),
        len(new & page_words) / max(1, len(new)),
    )
    return Reading(numbers, words, characters)


def cut_off(trajectory: Trajectory) -> bool:
    """Returns whether a limit ended the run, not the agent or task; see the module docstring."""
    truncated, terminated = (
        trajectory.metadata.get("truncated"),
        trajectory.metadata.get("terminated"),
    )
    if isinstance(truncated, bool):
        return truncated
    return terminated is not True and not (
        trajectory.steps and trajectory.steps[-1].action.is_final
    )


def _ended_by_environment(trajectory: Trajectory) -> bool:
    """Returns whether the environment ended the run, not a limit or the agent.

    An agent that gives an answer has ended the run itself.
    """
    return (
        trajectory.answer is None
        and not trajectory.steps[-1].action.is_final
        and not cut_off(trajectory)
    )


def _actions(trajectory: Trajectory) -> tuple[list[str], list[object]]:
    """Returns the kind of every action, and a signature that distinguishes actions."""
    kinds: list[str] = []
    signatures: list[object] = []
    for step in trajectory.steps:
        action = step.action
        kind = action.kind if action.kind in _KNOWN else "other"
        kinds.append(kind)
        signatures.append(
            kind
            if kind in _WORDLESS
            else (kind, action.text, action.target, action.value, action.point, action.end_point)
        )
    return kinds, signatures


def _narrow(trajectory: Trajectory, last: set[str]) -> list[float]:
    kinds, signatures = _actions(trajectory)
    by_kind, by_signature = Counter(kinds), Counter(signatures)
    n, most = len(kinds), max(by_signature.values())
    run = max(sum(1 for _ in same) for _, same in groupby(signatures))
    goal, goal_words = trajectory.task.goal, _goal_words(trajectory)
    question, by_environment = _is_question(goal), _ended_by_environment(trajectory)
    return [
        by_environment, by_environment and question,
        question, log1p(len(goal)), log1p(sum([word.isdigit() for word in goal_words])), log1p(goal.count('"')),  # noqa: E501
        log1p(len(goal_words)),
        trajectory.error is not None, log1p(len(last & _ERRORS)),
        log1p(n), n >= 7, n >= 10, n >= 15, n >= 25,
        log1p(n - len(by_signature)), min(most, _MAX_COUNT), min(run, _MAX_COUNT), run >= 3,
        *(log1p(by_kind[kind]) for kind in _KINDS),
    ]  # fmt: skip


def _telemetry(trajectory: Trajectory) -> list[float]:
    kinds, signatures = _actions(trajectory)
    n = len(kinds)
    by_kind, by_signature = Counter(kinds), Counter(signatures)
    different, most = len(by_signature), max(by_signature.values())
    repeated = n - different
    run = max(sum(1 for _ in same) for _, same in groupby(signatures))
    cut = cut_off(trajectory)
    steps, share, last = log1p(n), repeated / n, kinds[-1]
    numbers: list[float] = [
        min(n, _MAX_COUNT), steps, n <= 3, n <= 6, n <= 9, n >= 15, n >= 25,
        cut, last == "answer", last == "stop", last not in ("answer", "stop"), trajectory.error is not None,  # noqa: E501
        share, log1p(repeated), min(different, _MAX_COUNT), min(most, _MAX_COUNT), min(run, _MAX_COUNT), run >= 3, len(set(signatures[-5:])),  # noqa: E501
    ]  # fmt: skip
    numbers += (0.0, 0.0, 0.0, 0.0) if cut else (n >= 15, steps, share, run >= 3)
    for kind in _KINDS:
        count = by_kind[kind]
        numbers += (count / n, log1p(count)) if count else (0.0, 0.0)
    numbers.append(log1p(len(trajectory.task.goal)))
    return numbers


def _is_question(goal: str) -> bool:
    return "?" in goal or goal.lower().startswith(_QUESTIONS)


def _goal_words(trajectory: Trajectory) -> set[str]:
    return {
        w for w in _words(trajectory.task.goal) if (len(w) > 2 or w.isdigit()) and w not in _COMMON
    }


def _cues(
    trajectory: Trajectory, states: list[list[str]], goal: set[str], page_words: set[str]
) -> tuple[float, ...]:
    many = max(1, len(goal))
    question = _is_question(trajectory.task.goal)
    finished = trajectory.steps[-1].action.is_final
    typed_text = " ".join(
        [s.action.value for s in trajectory.steps if s.action.kind in _TYPING and s.action.value]
    )
    return (
        len(goal.intersection(states[-1])) / many,
        len(goal & page_words) / many,
        question,
        question and finished,
        finished and not question,
        log1p(sum([word.isdigit() for word in goal])),
        log1p(trajectory.task.goal.count('"')),
        log1p(len(goal)),
        len(goal.intersection(_words(typed_text))) / many,
    )


def _value_cues(trajectory: Trajectory) -> tuple[float, ...]:
    goal = trajectory.task.goal
    mentioned = set(_words(goal))
    asked = set[str]().union(*(_words(goal[start:end]) for start, end in value_spans(goal)))
    entries = [set(_words(value)) for value in last_entries(trajectory).values()]
    shown = set(_words(_text(trajectory.steps[0].observation)))
    clicks = [
        set(_words(clicked(step.action.target)))
        for step in trajectory.steps
        if step.action.kind == "click" and step.action.target
    ]
    typed = [
        set(_words(step.action.value))
        for step in trajectory.steps
        if step.action.kind in ENTERING and step.action.value
    ]
    touched = set[str]().union(*clicks, *typed)
    last = set[str]().union(*entries, *clicks)
    many = max(1, len(asked))
    others = [bool(words - mentioned) for words in entries]
    named = [bool(words) and words <= mentioned for words in clicks]
    return (
        len(asked & touched) / many,
        len(asked & last) / many,
        bool(asked) and asked <= last,
        bool(others) and not any(others),
        any(others),
        any(words - mentioned - shown for words in entries),
        sum(named) / max(1, len(named)),
        bool(named) and named[-1],
        bool(named) and not named[-1],
        bool(clicks) and not _SUBMITTING.isdisjoint(clicks[-1]),
    )


def _page_cues(states: list[list[str]]) -> tuple[float, ...]:
    doubts = [sum(map(_DOUBTS.__contains__, words)) for words in states]
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


def _text(observation: Observation) -> str:
    return observation.caption or observation.text or ""


def _words(text: str) -> list[str]:
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS // 2]} {text[-MAX_CHARACTERS // 2 :]}"
    if _TO_FOLD.search(text):
        text = _folded(text)
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())


def _folded(text: str) -> str:
    """Returns the text with Latin letters for lookalikes, without accents and invisible ones."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", text).translate(_FOLDED))
