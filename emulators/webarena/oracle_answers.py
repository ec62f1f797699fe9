r"""WebArena's string_match and url_match: compare the answer and the agent's last address with
references (arXiv 2307.13854).

`paper` compares as the original code does. `fixed` corrects these known defects. In answers:

| reference           | answer              | paper | fixed | why |
|---------------------|---------------------|-------|-------|-----|
| "65 \|OR\| 3"       | "65"                | no    | yes   | alternatives were supported in pages only (task 386) |
| "0"                 | "$0.00", "0/5"      | no    | yes   | a single character had to be a separate token (task 144) |
| "19"                | "190", "2.19"       | yes   | no    | digits inside a longer number |
| "5.0", "1200"       | "5", "1,200"        | no    | yes   | equal numbers are equal |
| "170"               | "000000170"         | yes   | no    | numbers with leading zeros are names |
| "Blue Band"         | two spaces, no-break space | no | yes | any run of spaces is one space |
| exact "N/A"         | "N/A.", “N/A”       | no    | yes   | a full stop and curly quotation marks around an answer |
| "x" and fuzzy "N/A" | the reason, no x    | yes   | no    | the judge's reply replaced the earlier checks |
| fuzzy "N/A"         | nothing             | asks  | no    | an empty answer is not a reason |

Unchanged in both: "eyes" includes "yes", "watch" does not include "watches" (tasks 643, 649),
"two" is not "2".

In addresses, which have one rule, "GOLD in PRED":

| reference              | address                  | paper | fixed | why |
|------------------------|--------------------------|-------|-------|-----|
| http://x/              | http://x/p/1             | yes   | no    | host and path were searched as a substring |
| http://x/p/1           | http://x/p/10            | yes   | no    | the same |
| http://x/f/DIY         | http://x/f/diy           | no    | yes   | the references use both spellings of a forum |
| http://x/s/?q=a        | http://x/s?q=a           | no    | yes   | a slash was removed only at the very end |
| /s?q=a%20 (a blank)    | /s?q=A                   | no    | yes   | blanks around a value, and small and capital letters |
| /a?q=1 \|OR\| /b?q=2   | /a?q=2                   | yes   | no    | the values of all alternatives were merged |
| /a?t=1&t=2             | /a?t=1                   | yes   | no    | one of several values was enough |

In both, an address below a path passes (http://x/f/books accepts http://x/f/books/12/title), because
tasks that create something need it. Fragments (after #) are ignored.
"""  # noqa: E501

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from urllib.parse import parse_qs, unquote, urlparse, urlsplit

from prill.datasets.webarena_tasks import (
    Check,
    Mode,
    References,
    TaskConfig,
    UndecidableError,
    product,
    require_sites,
    without_login,
)
from prill.errors import UnscoredError
from prill.models.prompts import NONCE, load_prompt, quoted, shorten
from prill.models.replies import ReplyFormat, excerpt
from prill.protocols import LanguageModel, Message

FUZZY = ReplyFormat("reasoning", "verdict", ("correct", "incorrect", "partially correct"))
REASON = ReplyFormat("reasoning", "verdict", ("same", "different"))
MAX_TOKENS = 768  # of the original's judge
_ANSWER_CHARS = 8000
RULE = "GOLD in PRED"
_OR, _TAB = " |OR| ", " |AND| "
_PLAIN_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?")
_NUMBERS = re.compile(r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_QUOTES = "'\"`“”‘’"
# The rules of the Penn Treebank tokeniser, used by the original, that separate single digits.
_CUTS = (
    (re.compile(r"(?<!\w)'(?=\w)"), " ' "),
    (re.compile(r"([^.])\.([\s\])}>\"'»”’]*)$"), r"\1 . \2"),
    (re.compile(r"([«“‘„»”’\"`;@#$%&?!*\[\](){}<>]|\.\.+|--|'')"), r" \1 "),
    (re.compile(r"([:,])(?=\D|$)"), r" \1 "),
    (re.compile(r"([^\s'])('s|'m|'d|'ll|'re|'ve|n't|')(?!\S)"), r"\1 \2 "),
)


def cleaned(text: str) -> str:
    """Returns the text as both modes compare it: in lower case, without surrounding spaces and one
    pair of straight quotation marks.
    """
    text = text.strip()
    for mark in "'\"":
        if text.startswith(mark) and text.endswith(mark):
            return text[1:-1].lower()
    return text.lower()


def equals(reference: str, answer: str, mode: Mode) -> bool:
    """Returns whether an answer passes exact_match."""
    if mode == "paper":
        return cleaned(answer) == cleaned(reference)
    return _bare(answer) == _bare(reference)


def includes(reference: str, answer: str, mode: Mode, *, only_one: bool = False) -> bool:
    """Returns whether an answer passes must_include.

    `only_one`: it is the only reference (paper: a single character must then be a token).
    """
    if mode == "fixed":
        return any(_includes_fixed(one, answer) for one in reference.split(_OR))
    wanted, text = cleaned(reference), cleaned(answer)
    return wanted in (tokens(text) if only_one and len(wanted) == 1 else text)


def tokens(text: str) -> list[str]:
    """Splits a text into tokens like the original's tokeniser, which does not split sentences, so
    that "0. no" has no token "0".
    """
    for cut, into in _CUTS:
        text = cut.sub(into, text)
    return text.split()


async def check_answer(
    config: TaskConfig, answer: str, mode: Mode, model: LanguageModel | None
) -> list[Check]:
    """Returns the checks of an answer ("" if there is none).

    Checks that need a model are undecided without one, or if its call fails.
    """
    references = config.eval.reference_answers or References()
    checks = []
    quotation = excerpt(answer)
    # the original strips the answer once more than the references, so `"'x'"` equals x
    if mode == "paper":
        answer = cleaned(answer)
    if references.exact_match is not None:
        passed = equals(references.exact_match, answer, mode)
        checks.append(Check(passed, f"string_match: {quotation} is not {references.exact_match!r}"))
    for reference in references.must_include:
        passed = includes(reference, answer, mode, only_one=len(references.must_include) == 1)
        checks.append(Check(passed, f"string_match: {quotation} does not include {reference!r}"))
    if references.fuzzy_match == "N/A":
        return await _check_reason(config, answer, checks, mode, model)
    for reference in references.fuzzy_match:
        checks.append(await _ask_model(model, "fuzzy_match", config.intent, reference, answer))
    return checks


async def _check_reason(
    config: TaskConfig, answer: str, checks: list[Check], mode: Mode, model: LanguageModel | None
) -> list[Check]:
    """Returns the checks of an impossible task: the answer is N/A, or gives the true reason why the
    task cannot be done.
    """
    says_so = Check(equals("N/A", answer, mode), f"string_match: {excerpt(answer)} is not 'N/A'")
    if says_so.passed and (mode == "fixed" or product([*checks, says_so])):
        return [*checks, says_so]
    if mode == "fixed" and not answer.strip():
        return [*checks, says_so]
    reason = await _ask_model(
        model, "fuzzy_reason", config.intent, config.eval.string_note or "", answer
    )
    return [reason] if mode == "paper" else [*checks, reason]


async def _ask_model(
    model: LanguageModel | None, prompt: str, intent: str, reference: str, answer: str
) -> Check:
    what = f"string_match: {excerpt(answer)} compared with {reference!r}"
    if model is None:
        return Check(None, f"{what} needs a model")
    form = FUZZY if prompt == "fuzzy_match" else REASON
    values = {
        "task": quoted("task", intent),
        "reference": quoted("reference", reference or "(none)"),
        "answer": quoted("answer", shorten(answer, _ANSWER_CHARS) or "(none)"),
        "code": NONCE,
    }
    turns = load_prompt("prill.emulators.webarena", prompt).fill(values)
    messages = (Message("system", (turns["system"],)), Message("user", (turns["user"],)))
    try:
        reply = await model.complete(
            messages,
            form=form,
            max_tokens=MAX_TOKENS,
            prompt=load_prompt("prill.emulators.webarena", prompt).hash,
        )
    except UnscoredError as failure:
        return Check(None, f"{what}, but the model gave no verdict ({failure.code})")
    verdict = reply.fields["verdict"]
    return Check(verdict == form.choices[0], f"{what}: {verdict}")


def _includes_fixed(reference: str, answer: str) -> bool:
    wanted, text = cleaned(" ".join(reference.split())), " ".join(answer.split()).lower()
    if _PLAIN_NUMBER.fullmatch(wanted):
        return Decimal(wanted) in _numbers(text)
    before = r"(?<!\d)(?<!\d[.,])" if wanted[:1].isdigit() else ""
    after = r"(?!\d)(?![.,]\d)" if wanted[-1:].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def _numbers(text: str) -> Iterator[Decimal]:
    for number in _NUMBERS.findall(text):
        plain = number.replace(",", "")
        # Order numbers such as 000000170 are names, not amounts.
        if _PLAIN_NUMBER.fullmatch(plain):
            yield Decimal(plain)


def _bare(text: str) -> str:
    """Returns the text in lower case, single spaces, without outer quotation marks or full stop."""
    return " ".join(text.split()).lstrip(_QUOTES).rstrip(_QUOTES + " .!").lower()


def check_url(
    config: TaskConfig, url: str | None, mode: Mode, hosts: Collection[str] | None = None
) -> Check:
    """Returns the check of the last address.

    It is undecided if there is no address, or if it fails for a host that is not in `hosts`.
    """
    wanted = without_login(config.eval.reference_url or "")
    if config.eval.url_note not in (None, RULE):
        return Check(None, f"url_match: the rule {config.eval.url_note!r} is not known")
    if url is None:
        return Check(None, "url_match: the last address was not recorded")
    url = without_login(url)
    try:
        require_sites(wanted)
        passed = url_matches(wanted, url, mode)
        if not passed and hosts is not None and (host := _host(url)) and host not in hosts:
            return Check(
                None, f"url_match: {url} cannot be compared: no task names the host {host}"
            )
        return Check(passed, f"url_match: {url} does not match {wanted}")
    except (ValueError, UndecidableError) as error:
        return Check(None, f"url_match: {url} cannot be compared with {wanted} ({error})")


def url_matches(reference: str, url: str, mode: Mode) -> bool:
    """Returns whether the address matches one of the references, separated by " |OR| ". Raises
    ValueError for an invalid one.
    """
    references = [one.rstrip("/") for one in reference.split(_OR)]
    if mode == "fixed":
        return any(_matches_fixed(one, url) for one in references)
    path, query = _parts(url.rstrip("/"))
    wanted: dict[str, set[str]] = defaultdict(set)
    paths = []
    for one in references:
        base, values = _parts(one)
        paths.append(base)
        for key, choices in values.items():
            wanted[key].update(choices)
    return any(base in path for base in paths) and all(
        any(value in query.get(key, ()) for value in values) for key, values in wanted.items()
    )


def hosts(configs: Iterable[TaskConfig]) -> frozenset[str]:
    """Returns the hosts and ports of the tasks' sites."""
    urls = [
        url
        for config in configs
        for url in (*config.start_url.split(_TAB), *(config.eval.reference_url or "").split(_OR))
    ]
    return frozenset(map(_host, urls)) - {""}


def _host(url: str) -> str:
    try:
        return urlsplit(without_login(url)).netloc
    except ValueError:
        return ""


def _parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(url)
    return parts.netloc + parts.path, parse_qs(parts.query)


def _matches_fixed(reference: str, url: str) -> bool:
    wanted, address = urlsplit(reference), urlsplit(url)
    if not wanted.netloc:
        raise ValueError("the reference has no host")
    if wanted.netloc.lower() != address.netloc.lower():
        return False
    path, there = _segments(wanted.path), _segments(address.path)
    if there[: len(path)] != path or (not path and there):
        return False
    values = _values(address.query)
    return all(
        expected <= values.get(key, set()) for key, expected in _values(wanted.query).items()
    )


def _segments(path: str) -> list[str]:
    return [unquote(part).lower() for part in path.split("/") if part]


def _values(query: str) -> dict[str, set[str]]:
    return {
        key: {" ".join(value.split()).lower() for value in values}
        for key, values in parse_qs(query).items()
    }
