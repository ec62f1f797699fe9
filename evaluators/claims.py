"""Detects whether an agent's answer claims success or failure.

Each clause is classified as an admission ("I was unable to log in"), a claim ("the order was
placed"), or neither, which is the most frequent case. English, German, French, Spanish and Chinese
are supported. Quotations are ignored, and "no errors" is not an admission. The result is uncertain
if the answer contains both an admission and a claim, or is in another language.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Stance = Literal["claim", "admission", "unclear"]
_MAX_CHARS = 4000  # of an answer, at its start and again at its end
_MIN_SENTENCE = (
    6  # words; shorter answers are names and numbers, for which the language does not matter
)

# Answers that state that there is no answer, in the wording of WebArena's and similar agents, or
# that start like an error log.
_NO_ANSWER = re.compile(
    r"\W*(n/?a|none|null|unknown|no results?|nothing|early stop\b.*|max(imum)? (number of )?steps\b.*|"  # noqa: E501
    r"(error|exception|failure)(\s*[:\-–(\[].*|\s(occurred|while|when|loading|during|executing|encountered)\b.*)?|"
    r"(traceback|fail(ed)?|impossible|infeasible)\b.*)\W*",
    re.DOTALL,
)
_CLAUSE = re.compile(
    r"(?<=[.!?;:])\s+|(?<=[。！？；，])|\n+|(?=但)|"
    r"\s(?=(?:but|however|although|though|because|so|aber|jedoch|mais|cependant|pero)\b)"
)
_QUOTED = re.compile(
    r"[\"“„«][^\"”“»\n]{0,300}[\"”“»]|(?<!\w)'[^'\n]{0,300}'(?!\w)|「[^」\n]{0,300}」"
)
_FAILED = "the agent's answer admits that it failed"


@dataclass(frozen=True)
class _Phrases:
    denied: re.Pattern[str]
    admission: re.Pattern[str]
    doubt: re.Pattern[str]
    claim: re.Pattern[str]
    first_try: re.Pattern[str]
    common_words: frozenset[str]


@cache
def _phrases() -> _Phrases:
    table = tomllib.loads((files("prill.evaluators") / "claims.toml").read_text(encoding="utf-8"))
    words = frozenset(table.pop("common_words").split())
    return _Phrases(
        **{name: re.compile("|".join(phrases)) for name, phrases in table.items()},
        common_words=words,
    )


def parse_stance(answer: str) -> tuple[Stance, str]:
    """Parses an answer's claim about success, with the reason for that reading."""
    phrases = _phrases()
    text = answer.strip().replace("’", "'").casefold().replace("can't", "cannot")
    if not text or (_NO_ANSWER.fullmatch(text) and not phrases.claim.search(text)):
        return "admission", _FAILED
    if not _is_supported(text):
        return "unclear", "the agent's answer is in a language whose admissions are not known here"
    text = text if len(text) <= 2 * _MAX_CHARS else f"{text[:_MAX_CHARS]}\n{text[-_MAX_CHARS:]}"
    admitted: list[bool] = []  # for each relevant clause: whether it is an admission
    doubt = tried = False
    for clause in filter(None, _CLAUSE.split(phrases.denied.sub(" ", _QUOTED.sub(" ", text)))):
        if phrases.admission.search(clause):
            admitted.append(True)
            tried = tried or phrases.first_try.search(clause) is not None
        elif phrases.claim.search(clause):
            admitted.append(False)
        doubt = doubt or phrases.doubt.search(clause) is not None
    if not any(admitted):
        return (
            ("unclear", "the agent's answer doubts itself")
            if doubt and not admitted
            else ("claim", "the agent gave an answer")
        )
    if all(admitted):
        return "admission", _FAILED
    if tried and not admitted[-1]:
        return "claim", "the agent's answer says that it did it in the end"
    return "unclear", "the agent's answer admits a failure, and claims success too"


def _is_supported(text: str) -> bool:
    """Returns whether the answer is in a supported language, or too short to have one."""
    start = text[:_MAX_CHARS]
    letters = [c for c in start if c.isalpha()]
    foreign = sum(c > "\u024f" and not "\u4e00" <= c <= "\u9fff" for c in letters)
    if foreign * 10 > len(letters):  # neither Latin nor Chinese: kana, Cyrillic, Arabic, …
        return False
    words = re.findall(r"[^\W\d_]+", start)
    accented = any(not word.isascii() and word < "\u0250" for word in words)
    return (
        len(words) < _MIN_SENTENCE or not accented or not _phrases().common_words.isdisjoint(words)
    )
