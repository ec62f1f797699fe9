"""The probability of a verdict from the log-probabilities of its first token."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from prill.protocols import Token


def choice_probability(
    tokens: Sequence[Token], field: str, choices: Sequence[str], wanted: str, said: str | None = None
) -> float | None:
    """P(wanted) among `choices` in [0, 1], at the place where the last value of `field` begins.

    `said` is the verdict that was read from the reply: other values of `field`, quoted in a reasoning behind it, are no place.

    The candidates listed there are summed by the choice that they are a prefix of ("succ", "success" -> success) and the
    sums are renormalised, since servers report probabilities before the constraint is applied. None when the place cannot
    be found or no choice is among the candidates: an unknown probability is not 0.5.
    """
    text = "".join(token.text for token in tokens)
    words = "|".join(re.escape(choice) for choice in (choices if said is None else [said]))
    places = list(re.finditer(rf"{re.escape(field)}[\s\"'*_`:]*[:][\s\"'*_`]*({words})", text, re.IGNORECASE))
    if not places:
        return None
    offset = places[-1].start(1)
    start = 0
    for token in tokens:
        if start + len(token.text) > offset:
            return _share(token, token.text[: offset - start], choices, wanted)
        start += len(token.text)
    return None


def _share(token: Token, lead: str, choices: Sequence[str], wanted: str) -> float | None:
    sums = dict.fromkeys(choices, 0.0)
    for text, logprob in dict([(token.text, token.logprob), *token.top]).items():
        rest = text[len(lead) :].lower() if text.startswith(lead) else ""
        meant = [choice for choice in choices if rest and _begins(rest, choice.lower())]
        if len(meant) == 1:
            sums[meant[0]] += math.exp(logprob)
    total = sum(sums.values())
    return sums[wanted] / total if total > 0 else None


def _begins(text: str, choice: str) -> bool:
    """True when the text is the choice or a beginning of it, or the choice and then no letter: "successful" is another word."""
    return choice.startswith(text) or (text.startswith(choice) and not text[len(choice)].isalnum())
