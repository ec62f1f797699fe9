r"""WebArena's string_match: an answer compared with references (arXiv 2307.13854).

`paper` compares as the original code does. `fixed` mends these known defects:

| reference           | answer              | paper | fixed | why |
|---------------------|---------------------|-------|-------|-----|
| "65 \|OR\| 3"       | "65"                | no    | yes   | alternatives were read in pages only (task 386) |
| "0"                 | "$0.00", "0/5"      | no    | yes   | a single character had to be a word of its own (task 144) |
| "19"                | "190", "2.19"       | yes   | no    | digits inside a longer number |
| "5.0", "1200"       | "5", "1,200"        | no    | yes   | equal numbers are equal |
| "170"               | "000000170"         | yes   | no    | numbers with leading zeros are names |
| "Blue Band"         | two blanks, no-break blank | no | yes | any run of blanks is one blank |
| exact "N/A"         | "N/A.", “N/A”       | no    | yes   | a full stop and curly quotation marks around an answer |
| "x" and fuzzy "N/A" | the reason, no x    | yes   | no    | what the judge said replaced the checks before it |
| fuzzy "N/A"         | nothing             | asks  | no    | no answer is no reason |

Left as it is in both: "eyes" includes "yes", "watch" does not include "watches" (tasks 643, 649), "two" is not "2".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from prill.datasets.webarena_tasks import References, TaskConfig
from prill.errors import Unscored
from prill.evaluators.calls import prompt_of
from prill.evaluators.evidence import shorten
from prill.evaluators.oracle_checks import Check, Mode, product
from prill.parse import ReplyFormat, excerpt
from prill.prompts import NONCE
from prill.protocols import LanguageModel, Message
from prill.quotation import quoted

FUZZY = ReplyFormat("reasoning", "verdict", ("correct", "incorrect", "partially correct"))
REASON = ReplyFormat("reasoning", "verdict", ("same", "different"))
MAX_TOKENS = 768  # of the original's judge
_ANSWER_CHARS = 8000
_OR = " |OR| "
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?")
_NUMBERS = re.compile(r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_QUOTES = "'\"`“”‘’"
# The Penn Treebank's rules for words, which the original's tokeniser follows, as far as they set single digits apart.
_CUTS = (
    (re.compile(r"(?<!\w)'(?=\w)"), " ' "),
    (re.compile(r"([^.])\.([\s\])}>\"'»”’]*)$"), r"\1 . \2"),
    (re.compile(r"([«“‘„»”’\"`;@#$%&?!*\[\](){}<>]|\.\.+|--|'')"), r" \1 "),
    (re.compile(r"([:,])(?=\D|$)"), r" \1 "),
    (re.compile(r"([^\s'])('s|'m|'d|'ll|'re|'ve|n't|')(?!\S)"), r"\1 \2 "),
)


def cleaned(text: str) -> str:
    """The text as both modes compare it: without blanks around it or one pair of straight quotation marks, in small letters."""
    text = text.strip()
    for mark in "'\"":
        if text.startswith(mark) and text.endswith(mark):
            return text[1:-1].lower()
    return text.lower()


def equals(reference: str, said: str, mode: Mode) -> bool:
    """exact_match."""
    if mode == "paper":
        return cleaned(said) == cleaned(reference)
    return _bare(said) == _bare(reference)


def includes(reference: str, said: str, mode: Mode, *, only_one: bool = False) -> bool:
    """must_include. `only_one`: no other reference stands beside it (paper: then a single character must be a token)."""
    if mode == "fixed":
        return any(_includes_fixed(one, said) for one in reference.split(_OR))
    wanted, text = cleaned(reference), cleaned(said)
    return wanted in (tokens(text) if only_one and len(wanted) == 1 else text)


def tokens(text: str) -> list[str]:
    """The words of a text as the original's tokeniser cuts them; it knows no sentences, so "0. no" holds no token "0"."""
    for cut, into in _CUTS:
        text = cut.sub(into, text)
    return text.split()


async def check_answer(config: TaskConfig, said: str, mode: Mode, model: LanguageModel | None) -> list[Check]:
    """The checks of an answer, "" for none. Without a model, or when it fails, what it would decide is undecided."""
    references = config.eval.reference_answers or References()
    checks = []
    # The original cleans the answer once more than the references, so that `"'x'"` equals x.
    answer = cleaned(said) if mode == "paper" else said
    shown = excerpt(said)
    if references.exact_match is not None:
        passed = equals(references.exact_match, answer, mode)
        checks.append(Check(passed, f"string_match: {shown} is not {references.exact_match!r}"))
    for reference in references.must_include:
        passed = includes(reference, answer, mode, only_one=len(references.must_include) == 1)
        checks.append(Check(passed, f"string_match: {shown} does not include {reference!r}"))
    if references.fuzzy_match == "N/A":
        return await _check_reason(config, answer, checks, mode, model)
    for reference in references.fuzzy_match:
        checks.append(await _asked(model, "fuzzy_match", config.intent, reference, answer))
    return checks


async def _check_reason(
    config: TaskConfig, answer: str, checks: list[Check], mode: Mode, model: LanguageModel | None
) -> list[Check]:
    """The checks with that of a task nobody can do: the answer N/A, or the true reason why it cannot be done."""
    says_so = Check(equals("N/A", answer, mode), f"string_match: {excerpt(answer)} is not 'N/A'")
    if says_so.passed and (mode == "fixed" or product([*checks, says_so])):
        return [*checks, says_so]
    if mode == "fixed" and not answer.strip():
        return [*checks, says_so]
    reason = await _asked(model, "fuzzy_reason", config.intent, config.eval.string_note or "", answer)
    return [reason] if mode == "paper" else [*checks, reason]


async def _asked(model: LanguageModel | None, prompt: str, intent: str, reference: str, said: str) -> Check:
    what = f"string_match: {excerpt(said)} compared with {reference!r}"
    if model is None:
        return Check(None, f"{what} needs a model")
    form = FUZZY if prompt == "fuzzy_match" else REASON
    values = {
        "task": quoted("task", intent),
        "reference": quoted("reference", reference or "(none)"),
        "answer": quoted("answer", shorten(said, _ANSWER_CHARS) or "(none)"),
        "code": NONCE,
    }
    turns = prompt_of(prompt).fill(values)
    messages = (Message("system", (turns["system"],)), Message("user", (turns["user"],)))
    try:
        reply = await model.complete(messages, form=form, max_tokens=MAX_TOKENS, prompt=prompt_of(prompt).hash)
    except Unscored as failure:
        return Check(None, f"{what}, but the model gave no verdict ({failure.code})")
    verdict = reply.fields["verdict"]
    return Check(verdict == form.choices[0], f"{what}: {verdict}")


def _includes_fixed(reference: str, said: str) -> bool:
    wanted, text = cleaned(" ".join(reference.split())), " ".join(said.split()).lower()
    if _PLAIN_NUMBER.fullmatch(wanted):
        return Decimal(wanted) in _numbers(text)
    before = r"(?<!\d)(?<!\d[.,])" if wanted[:1].isdigit() else ""
    after = r"(?!\d)(?![.,]\d)" if wanted[-1:].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def _numbers(text: str) -> Iterator[Decimal]:
    for found in _NUMBERS.findall(text):
        plain = found.replace(",", "")
        # Order numbers such as 000000170 are names, not amounts.
        if _PLAIN_NUMBER.fullmatch(plain):
            yield Decimal(plain)


def _bare(text: str) -> str:
    """The text in small letters with single blanks, without quotation marks or a full stop around it."""
    return " ".join(text.split()).lstrip(_QUOTES).rstrip(_QUOTES + " .!").lower()
