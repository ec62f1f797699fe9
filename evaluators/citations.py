"""Finds the steps that a judge's reasons cite, such as [S3], and checks them against the record.

[S3] is action 3 with the state before it, `steps[2]`. The state after the last of n actions is
[Sn+1]. The report counts steps in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from prill.types import Citation, CitationStatus, Findings, Trajectory

if TYPE_CHECKING:
    from prill.evaluators.judgement import Judgement

CitationsOption = Annotated[
    bool,
    Meta(description="Let the model cite steps, as in [S3], and check them against the recording."),
]
WRONG: tuple[CitationStatus, ...] = ("not_shown", "no_such_step")
_MAX_CITATIONS, _MAX_RANGE = 200, 50
_DASH = r"\s{0,3}(?:-|–|—|\.{2,3}|…|\bto\b|\bthrough\b)\s{0,3}"
_COMMA = r"\s{0,3}(?:[,;/&+]|\band\b)\s{0,3}(?:and\s{1,3})?"
_LABEL = rf"S\d{{1,5}}(?:{_DASH}S?\d{{1,5}})?"
# Labels that are a whole line, or stand before a colon.
_ALONE = r"S\d{1,5}(?:[ ,;–-]{1,3}S?\d{1,5}){0,9}[ \t.]{0,3}(?::|$)"
# A bare S3 may be a product: a label stands in brackets, bold or code, after certain words, or
# alone on its line.
_LABELS = re.compile(
    rf"(?:[\[(`*{{【]|\b(?:steps?|see|in|at)\s{{1,3}}|^[ \t>•*-]{{0,9}}(?={_ALONE}))"
    rf"(?:(?:steps?|see)\s{{1,3}})?(?P<labels>{_LABEL}(?:{_COMMA}{_LABEL}){{0,30}})"
    r"(?!\w|[ \t]{1,3}(?-i:[A-Z\d]))",
    re.MULTILINE | re.IGNORECASE,
)
# "step 2 of 3" is a page's own count.
_STEPS = re.compile(
    rf"\b(?:step\s{{1,3}}#?(?P<one>\d{{1,5}}(?:{_DASH}\d{{1,5}})?)|"
    rf"steps\s{{1,3}}(?P<many>\d{{1,5}}(?:(?:{_DASH}|{_COMMA})\d{{1,5}}){{0,30}}))"
    r"(?!\w|\.\d|\s{0,3}(?:of|/)\s{0,3}\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")


def label(index: int) -> str:
    """Returns the label of a step, or of the state after the last action, from its index."""
    return f"[S{index + 1}]"


def find_citations(text: str, steps: int | None = None) -> list[tuple[str, int]]:
    """Finds the citations in a text, in any of the ways that models write them.

    These are `[S3]`, `(S3, S5)`, `[S3–S5]`, `**S3**`, `S3` in code, `step 3` and `steps 2 and 3`.

    Args:
        text: A judge's reason.
        steps: The number of steps that exist. A label outside square brackets, such as `(S2023)`,
            cites nothing if neither it nor another label next to it exists. None: it may exist.

    Returns:
        The citation's text and the index of the step, from 0, in the order of the text. A range of
        steps has several indices; of one that is longer than 50 steps, only the ends are returned.
    """
    found: list[tuple[int, str, int]] = []
    for match in _LABELS.finditer(text):
        group = [
            (match.start("labels") + part.start(), part[0], i)
            for part in re.finditer(_LABEL, match["labels"], re.IGNORECASE)
            for i in _expand(part[0])
        ]
        is_sure = match[0].startswith("[") or "step" in match[0].lower()
        if is_sure or steps is None or any(0 <= i < steps for *_, i in group):
            found += group
    for match in _STEPS.finditer(text):
        numbers = _expand(match["one"] or match["many"])
        found += [(match.start(), match[0], i) for i in numbers]
    return [(citation, i) for _, citation, i in sorted(found, key=lambda one: one[0])]


def _expand(text: str) -> list[int]:
    """Returns the indices of the numbers in a text, from 0, with those inside ranges."""
    numbers = list(_NUMBER.finditer(text))
    indices = [int(number[0]) - 1 for number in numbers[:1]]
    for before, number in pairwise(numbers):
        first, last = int(before[0]), int(number[0]) - 1
        between = text[before.end() : number.start()].rstrip("Ss")
        if re.fullmatch(_DASH, between, re.IGNORECASE) and last - first <= _MAX_RANGE:
            indices += range(first, last)
        indices.append(last)
    return indices


def check_citations(
    text: str, trajectory: Trajectory, states: Set[int], actions: Set[int] | None = None
) -> tuple[Citation, ...]:
    """Checks the citations in a reason against the states and actions (None: all) that the judge
    was shown, by their indices from 0. Each citation is there once, in the order of the text; at
    most 200.
    """
    seen = range(len(trajectory.steps)) if actions is None else actions
    known = len(trajectory.observations)

    def status(i: int) -> CitationStatus:
        if not 0 <= i < known:
            return "no_such_step"
        return "shown" if i in states else "action_shown" if i in seen else "not_shown"

    cited = dict.fromkeys(find_citations(text, known))
    return tuple(
        Citation(text=words, step=i, status=status(i)) for words, i in list(cited)[:_MAX_CITATIONS]
    )


def with_citations(
    judgement: Judgement, trajectory: Trajectory, states: Set[int], texts: Sequence[str] = ()
) -> Judgement:
    """Adds the checked citations of a judgement to its findings.

    `states` are the indices of the states that the judge was shown, from 0; `texts` is what the
    model wrote (empty: the judgement's reason).
    """
    text = "\n".join(texts or (judgement.reason,))
    return add_citations(judgement, check_citations(text, trajectory, states))


def add_citations(judgement: Judgement, citations: Iterable[Citation]) -> Judgement:
    """Returns the judgement with these citations among its findings, each once."""
    found = judgement.findings or Findings()
    return replace(judgement, findings=replace(found, citations=tuple(dict.fromkeys(citations))))


def wrong_citations(findings: Findings | None) -> Iterator[Citation]:
    """Yields the citations of steps that do not exist or that the judge was not shown."""
    for citation in (findings and findings.citations) or ():
        if citation.status in WRONG:
            yield citation


def split_citations(text: str, citations: Sequence[Citation]) -> list[tuple[str, Citation | None]]:
    """Splits a reason at its checked citations, for links: the parts of the text, each with the
    citation that it is; None for other text. A range is one part, with its first step.
    """
    by_text: dict[str, Citation] = {}
    for citation in citations:
        by_text.setdefault(citation.text, citation)
    if not by_text:
        return [(text, None)]
    longest = sorted(by_text, key=len, reverse=True)
    parts = re.split(rf"(?<!\w)({'|'.join(map(re.escape, longest))})(?!\w)", text)
    return [(part, by_text.get(part) if i % 2 else None) for i, part in enumerate(parts) if part]
