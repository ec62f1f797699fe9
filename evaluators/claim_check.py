"""Checks the claims of an agent's answer against the recorded states and actions, without a model.

It searches for the answer's numbers, prices, dates, names, quotations, URLs and actions ("I posted
it") in the URLs, texts and captions of the recorded states and in the actions. The search ignores
case, quotation marks, Unicode forms, thousands separators and the order of a date.

A claim that is not found is `never_seen` only if the text of every recorded state is known;
otherwise it is `not_checkable`. A caption can confirm a claim; it counts as a state's whole text
only on request.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from importlib.resources import files
from itertools import islice

from prill.evaluators.evidence import without_claims
from prill.types import Action, CheckedClaim, ClaimKind, Observation, Trajectory

# Increase it when the detection or the lookup of claims changes.
VERSION = "1"
_ANSWER_CHARS, _STATE_CHARS, _ALL_CHARS = 20_000, 200_000, 2_000_000
_MAX_CLAIMS = 100
_NEAR = 40  # characters between a small number and the word that it counts
_LABEL_GAP = 30  # characters between a label and its value
_SMALL = 100  # smaller whole numbers are on every page: they count only with their noun
_GAP_WORDS = 2  # maximum number of extra words inside a name on a page: "Dell Inc. OptiPlex"

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_CURRENCY = r"(?:US\$|[$€£¥₹₩]|\b(?:USD|EUR|GBP|JPY|CNY|INR|CAD|AUD|CHF)\b)"
_DIGITS = r"\d{1,3}(?:[,.'’\u00a0\u202f ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d+)?"
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,15}://|www\.)[^\s<>\"'`\])]{3,2000}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",
    re.IGNORECASE,
)
_QUOTATION = re.compile(
    r"“([^“”\n]{1,500})”|(?<![\w])\"([^\"\n]{1,500})\"(?!\w)|„([^„“”\n]{1,500})[“”]|«([^«»\n]{1,500})»|「([^「」\n]{1,500})」|"
    r"```[a-z]*\n?([^`]{1,500})```|`([^`\n]{1,500})`|(?<!\w)['‘]((?:[^'’\n]|['’](?=\w)){1,500})['’](?!\w)"
)
_PRICE = re.compile(
    rf"{_CURRENCY}\s?(?P<a>{_DIGITS})|(?P<b>{_DIGITS})\s?(?:{_CURRENCY}|dollars?\b|euros?\b)",
    re.IGNORECASE,
)
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)",
        r"\b(?P<p>\d{1,2})[-/.](?P<q>\d{1,2})[-/.](?P<y>\d{4}|\d{2})(?!\d)",
        rf"\b(?P<n>{_MONTH})\s(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s(?P<y>\d{{4}}))?\b",
        rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<n>{_MONTH})(?:,?\s(?P<y>\d{{4}}))?\b",
        rf"\b(?P<n>{_MONTH}),?\s(?P<y>\d{{4}})\b",
        r"(?<![\d/])(?P<m>0?[1-9]|1[0-2])/(?P<y>\d{4})\b",
        r"(?P<y>\d{4})年(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})日)?",
    )
)
_NUMBER = re.compile(
    rf"(?<![\w.,#/-])(?P<n>{_DIGITS})(?P<unit>\s?%|(?!am|pm)[a-z]{1, 3}\b)?(?![\w/-])(?!\.\d)",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"#?\b(?!\d+[A-Za-z]{1,3}\b)(?=[\w-]{4,40}\b)(?=[\w-]*[A-Z])(?=[\w-]*\d)[A-Z0-9][\w-]+\b|#\d{1,12}\b"
)
_TITLE = (
    r"(?:(?:[A-Z]|Dr|Mrs?|Ms|St|Inc|Co|Ltd|Jr|Sr|No)\.(?=[ \t])|[A-Z][\w'’&-]*(?:\.\w[\w'’&-]*)*"
    r"|[a-z]{1,3}[A-Z]\w*|\d[\w.]*\w|\d)"
)
_NAME = re.compile(
    rf"(?<![\w'’])(?=[A-Za-z]){_TITLE}"
    rf"(?:[ \t](?:(?:of|the|de|von|van|&)[ \t]){{0,2}}{_TITLE}){{0,9}}"
)
_DEED = re.compile(
    r"\b(?:I(?:['’]ve| have)?|we(?:['’]ve| have)?|(?:has|have|had) (?:\w+ )?been|was|were|"
    r"is now|are now)\s"
    r"(?:(?:now|also|just|already|successfully|correctly|then)\s){0,2}(?P<verb>[a-z]+)\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:not|no|none|neither|nor|without|lacks?|lacking|missing|cannot|fails?|unclear|never|nothing|needed|required"
    r"|would|should|whether|must)\b|n['’]t\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"(?<=[.!?;:])\s+|\n+|\s(?=(?:but|however|although|though|yet)\b)", re.IGNORECASE
)
# Questions, proposals and plans are not claims.
_SPAN = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]+)*[.!?]?")
_OFFER = re.compile(
    r"\?$|\b(?:could (?:try|you)|would you|you (?:may|might|could|can)|let me|"
    r"I will|I['’]ll|please)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"((?:[^\W\d_]+ ){0,3}[^\W\d_]{4,})\s?(?::|=|(?:is|was|are):?)$")
_DETERMINERS = frozenset(("a", "an", "the", "its", "their", "your", "my", "this", "that", "of"))
_ITEM = re.compile(r"\s*(?:[-–•*]|\d{1,2}[.)])")
_WORD = re.compile(r"\w+")
_COUNTED = dict(
    zip(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"),
        (*range(1, 11), 12),
        strict=True,
    )
)
_TYPED, _TOUCHED = (
    frozenset({"type"}),
    frozenset({"click", "tap", "double_click", "double_tap", "select", "long_press"}),
)
_MOVED = frozenset({"scroll", "swipe"})
_WENT = frozenset({"goto", "open", "back", "new_tab", "focus_tab", "launch"}) | _TOUCHED
_ANY = _TYPED | _TOUCHED | frozenset({"press", "drag", "upload", "other"})
# The kinds of action that each claimed deed requires.
_KINDS = {
    "typed": _TYPED | {"other"},
    "touched": _TOUCHED | {"press", "other"},
    "moved": _MOVED | {"press", "other"},
    "went": _WENT | {"press", "other"},
    "found": _ANY | _WENT,
    "changed": _ANY,
}


@cache
def _word_lists() -> Mapping[str, frozenset[str]]:
    """Returns the word lists: words that are not names, and verbs by the actions they require."""
    text = (files("prill.evaluators") / "claim_check.toml").read_text(encoding="utf-8")
    return {name: frozenset(words.split()) for name, words in tomllib.loads(text).items()}


def _kinds(verb: str) -> frozenset[str] | None:
    """Returns the kinds of action that a verb requires; None if the verb describes no action."""
    return next((kinds for name, kinds in _KINDS.items() if verb in _word_lists()[name]), None)


_Date = tuple[int | None, int, int | None]  # year, month, day


def check_claims(
    trajectory: Trajectory, *, captions_are_whole: bool = False
) -> tuple[CheckedClaim, ...]:
    """Checks the checkable claims of the final answer.

    Args:
        trajectory: The trajectory; its messages to the user do not count as evidence.
        captions_are_whole: Treat a caption as complete, so that a claim that no caption mentions
            was never seen.

    Returns:
        The claims in the order of the answer, at most 100, of its first 20,000 characters.
    """
    answer = (trajectory.answer or "")[:_ANSWER_CHARS]
    claims = {(claim.kind, claim.text): claim for claim in _claims(answer)}
    found = list(islice(claims.values(), _MAX_CLAIMS))
    if not found:
        return ()
    record = _Record(trajectory, captions_are_whole)
    return tuple(_checked(claim, record) for claim in found)


def unseen_claims(claims: Iterable[CheckedClaim]) -> tuple[CheckedClaim, ...]:
    """Selects the claims that were never seen or that were contradicted, in order."""
    return tuple(claim for claim in claims if claim.status in ("never_seen", "contradicted"))


def normalize_text(text: str) -> str:
    """Normalises a text for comparison: lower case, no punctuation, single spaces."""
    return _Text(text).words.strip()


@dataclass(frozen=True)
class _Claim:
    """A claim in the answer: its text, the text before it, and how to find it in a page."""

    kind: ClaimKind
    text: str
    before: str
    finder: Callable[[_Text], bool]
    others: Callable[[_Text, str], Iterable[str]] | None = None  # other values after a label
    asked: Callable[[_Text], bool] | None = None  # how to find it in the request


def _claims(answer: str) -> Iterator[_Claim]:
    offers = [match.span() for match in _SPAN.finditer(answer) if _OFFER.search(match[0])]
    spans: list[tuple[int, int]] = []
    found: list[tuple[int, _Claim]] = []

    def take(start: int, end: int, claim: _Claim | None) -> None:
        if claim is not None and all(end <= a or b <= start for a, b in (*spans, *offers)):
            spans.append((start, end))
            found.append((start, claim))

    def before(start: int) -> str:
        return answer[max(0, start - 80) : start]

    for match in _ADDRESS.finditer(answer):
        text = match[0].rstrip(".,;:!?)")
        take(
            match.start(),
            match.start() + len(text),
            _Claim("address", text, "", _word_finder(text)),
        )
    for match in _QUOTATION.finditer(answer):
        text = next(filter(None, match.groups()), "").strip()
        if any(c.isalnum() for c in text):
            take(match.start(), match.end(), _Claim("quotation", text, "", _word_finder(text)))
    for dates in _DATES:
        for match in dates.finditer(answer):
            if days := _days(match):
                take(
                    match.start(),
                    match.end(),
                    _Claim(
                        "date",
                        match[0],
                        before(match.start()),
                        _date_finder(days),
                        _other_dates(days),
                    ),
                )
    for match in _PRICE.finditer(answer):
        digits = match["a"] or match["b"]
        if values := _values(digits):
            take(
                match.start(),
                match.end(),
                _Claim(
                    "price",
                    match[0],
                    before(match.start()),
                    _price_finder(values),
                    _other_numbers(values),
                ),
            )
    for match in _NAME.finditer(answer):
        start, text = _name(answer, match)
        if text and answer[start + len(text) : start + len(text) + 1] != ":":  # no label
            take(start, start + len(text), _Claim("name", text, "", _name_finder(text)))
    for match in _IDENTIFIER.finditer(answer):
        take(match.start(), match.end(), _Claim("name", match[0], "", _word_finder(match[0])))
    for match in _NUMBER.finditer(answer):
        if values := _values(match["n"]):
            take(match.start(), match.end(), _number(answer, match, values))
    for match in _DEED.finditer(answer):
        if _kinds(match["verb"].lower()) and not _DENIAL.search(match[0]):
            take(
                match.start(),
                match.end(),
                _Claim("action", match[0], match["verb"].lower(), lambda text: False),
            )
    for _, claim in sorted(found, key=lambda pair: pair[0]):
        yield claim


def _number(answer: str, match: re.Match[str], values: frozenset[Decimal]) -> _Claim | None:
    """Returns the claim of a number; a small number needs its noun, because it is on every page."""
    line = answer[: match.start()].rpartition("\n")[2]
    if not line.strip() and re.match(r"[.)]\s", answer[match.end() :]):
        return None  # a list number
    if not any(values):
        return None  # no page shows that there are none
    if (
        max(values) >= _SMALL
        or any(value != value.to_integral() for value in values)
        or match["unit"]
    ):
        finder = _number_finder(values, "", (match["unit"] or "").strip())
        return _Claim("number", match[0], line[-80:], finder, _other_numbers(values))
    noun = re.match(r"\s([^\W\d_]{3,})(?:\s([^\W\d_]{3,}))?", answer[match.end() :])
    words = [
        word
        for word in (noun.groups() if noun else ())
        if word and word.lower() not in _word_lists()["common"]
    ]
    word = words[0] if words else ""
    return _Claim(
        "number",
        f"{match[0]} {word}".strip(),
        line[-80:],
        _number_finder(values, word or " "),
        _other_numbers(values),
        _number_finder(values, ""),
    )


def _name(answer: str, match: re.Match[str]) -> tuple[int, str]:
    """Returns the position and text of a proper name, without words that only start a sentence;
    empty if there is none.
    """
    text, start = re.sub(r"['’]s?$|[&-]+$", "", match[0]), match.start()
    while text:
        first = text.split(None, 1)[0]
        opens = (
            not answer[:start].strip() or re.search(r"[.!?:\n*]\s*$", answer[:start]) is not None
        )
        if first.lower().rstrip(".") not in _word_lists()["common"] and not (
            opens and " " not in text
        ):
            break
        rest = text[len(first) :]
        start, text = start + len(first) + len(rest) - len(rest.lstrip()), rest.strip()
        if not any(c.isupper() for c in text):
            return start, ""
    words = text.split()
    while words and words[-1].lower() in _word_lists()["common"]:
        del words[-1]
        text = " ".join(words)
    if len(words) < 2 and (len(text) < 3 or re.fullmatch(_MONTH, text, re.IGNORECASE)):
        return start, ""
    return start, text


def _plain(text: str) -> str:
    """Normalises case, character width and quotation marks."""
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")


class _Text:
    """A text of the record in its searchable forms, each computed when needed."""

    def __init__(self, text: str) -> None:
        self.plain = _plain(text)

    @cached_property
    def words(self) -> str:
        return f" {' '.join(_WORD.findall(self.plain.replace(chr(39), '')))} "

    @cached_property
    def tokens(self) -> list[str]:
        """The words, and the punctuation that separates names."""
        return re.findall(r"\w+|[,;:|\n()]", self.plain.replace("'", ""))

    @cached_property
    def places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for i, word in enumerate(self.tokens):
            places.setdefault(word, []).append(i)
        return places

    @cached_property
    def numbers(self) -> list[tuple[frozenset[Decimal], int, int]]:
        digits = [
            (_values(m[0]), *m.span()) for m in re.finditer(rf"(?<![\w.,]){_DIGITS}", self.plain)
        ]
        spelt = [
            (frozenset({Decimal(_COUNTED[m[0]])}), *m.span())
            for m in re.finditer(rf"\b(?:{'|'.join(_COUNTED)})\b", self.plain)
        ]
        return digits + spelt

    @cached_property
    def dates(self) -> list[tuple[frozenset[_Date], int, int]]:
        return [
            (days, *m.span())
            for pattern in _DATES
            for m in pattern.finditer(self.plain)
            if (days := _days(m))
        ]


def _values(digits: str) -> frozenset[Decimal]:
    """Returns the possible values of a number: 1,234 and 1.234 are each 1234 or 1.234."""
    bare = re.sub(r"['’\u00a0\u202f ]", "", digits)
    readings = {bare.replace(",", "")}
    if "," in bare and re.search(r",\d{1,2}$", bare):
        readings = {bare.replace(".", "").replace(",", ".")}
    elif re.fullmatch(r"\d{1,3}(?:\.\d{3})+", bare):
        readings.add(bare.replace(".", ""))
    return frozenset(
        Decimal(reading) for reading in readings if reading.count(".") < 2 and len(reading) < 40
    )


def _days(match: re.Match[str]) -> frozenset[_Date]:
    part = match.groupdict()
    year = int(part["y"]) if part.get("y") else None
    year = year + 2000 if year is not None and year < 100 else year
    day = int(part["d"]) if part.get("d") else None
    if part.get("n"):
        months = [(_MONTHS.index(part["n"].lower()[:3]) + 1, day)]
    elif part.get("m"):
        months = [(int(part["m"]), day)]
    else:
        first, second = int(part["p"]), int(part["q"])
        months = [(first, second), (second, first)]
    return frozenset(
        (year, m, d) for m, d in months if 1 <= m <= 12 and (d is None or 1 <= d <= 31)
    )


def _word_finder(text: str) -> Callable[[_Text], bool]:
    words = _Text(text).words
    return lambda page: bool(words.strip()) and words in page.words


def _name_finder(text: str) -> Callable[[_Text], bool]:
    """Returns a function that finds a name, also if the page has a few extra words inside it."""
    exact = _word_finder(text)
    first, *rest = _Text(text).words.split() or [""]

    def find(page: _Text) -> bool:
        return exact(page) or (
            bool(rest) and any(_follows(page.tokens, i, rest) for i in page.places.get(first, ()))
        )

    return find


def _follows(tokens: Sequence[str], at: int, words: Sequence[str]) -> bool:
    for word in words:
        following = tokens[at + 1 : at + 2 + _GAP_WORDS]
        gap = following.index(word) if word in following else None
        if gap is None or any(mark in ",;:|\n()" for mark in following[:gap]):
            return False
        at += 1 + gap
    return True


def _date_finder(days: frozenset[_Date]) -> Callable[[_Text], bool]:
    return lambda page: any(
        _same_day(one, other) for found, *_ in page.dates for one in found for other in days
    )


def _same_day(seen: _Date, claimed: _Date) -> bool:
    """Returns whether two dates match; the page may omit the year."""
    years, days = (seen[0], claimed[0]), (seen[2], claimed[2])
    return (
        seen[1] == claimed[1]
        and (None in years or years[0] == years[1])
        and days[1] in (None, days[0])
    )


def _price_finder(values: frozenset[Decimal]) -> Callable[[_Text], bool]:
    def find(page: _Text) -> bool:
        for found, start, end in page.numbers:
            if found & values:
                around = page.plain[max(0, start - 4) : end + 9]
                if (
                    max(values) >= _SMALL
                    or re.search(_CURRENCY, around, re.I)
                    or "." in page.plain[start:end]
                ):
                    return True
        return False

    return find


def _number_finder(
    values: frozenset[Decimal], noun: str, unit: str = ""
) -> Callable[[_Text], bool]:
    stem, unit = _plain(noun.strip()).removesuffix("s"), _plain(unit)

    def counts(page: _Text, start: int, end: int) -> bool:
        """Returns whether a small number counts: it is next to its noun, or alone on a line."""
        line = page.plain[max(0, start - _NEAR) : start].rpartition("\n")[2]
        rest = page.plain[end : end + _NEAR].partition("\n")[0]
        if not line.strip() and not rest.strip():
            return True
        return bool(stem) and re.match(r"[.)]\s", rest) is None and stem in line + rest

    return lambda page: any(
        bool(found & values)
        and (not noun or counts(page, start, end))
        and page.plain[end : end + 40].lstrip().startswith(unit)
        for found, start, end in page.numbers
    )


def _after(label: str, page: _Text, spans: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yields the values that follow a label on the same line of a page."""
    ends = [m.end() for m in re.finditer(re.escape(label), page.plain)]
    for start, end in spans:
        if any(
            0 <= start - at <= _LABEL_GAP
            and not re.search(r"[^\W\d_]{3}|\n\s*\n", page.plain[at:start])
            for at in ends
        ):
            yield page.plain[start:end]


def _other_numbers(values: frozenset[Decimal]) -> Callable[[_Text, str], Iterable[str]]:
    return lambda page, label: _after(
        label, page, ((a, b) for found, a, b in page.numbers if not found & values)
    )


def _other_dates(days: frozenset[_Date]) -> Callable[[_Text, str], Iterable[str]]:
    return lambda page, label: _after(
        label, page, ((a, b) for found, a, b in page.dates if not found & days)
    )


class _Record:
    """The agent's observations and actions in searchable form, limited in size."""

    def __init__(self, trajectory: Trajectory, captions_are_whole: bool) -> None:
        silent = without_claims(trajectory)
        self.actions = [(i, step.action) for i, step in enumerate(silent.steps)]
        self.goal = _Text(
            "\n".join((trajectory.task.goal, *(t.task.goal for t in trajectory.task.earlier)))
        )
        # text that could not be parsed as an action may be the agent's own words
        self.typed = [
            (i, _Text(_action_text(action))) for i, action in self.actions if action.kind != "other"
        ]
        self.states: list[tuple[int, _Text]] = []
        self.open = 0  # states whose content is not fully known
        room, known = _ALL_CHARS, dict[str, _Text]()
        for i, state in enumerate(silent.observations):
            text, whole = _state_text(state, captions_are_whole)
            share = min(_STATE_CHARS, room)
            self.open += not whole or len(text) > share
            text = text[:share]
            room -= 0 if text in known else len(text)
            self.states.append((i, known.setdefault(text, _Text(text))))


def _state_text(state: Observation, captions_are_whole: bool) -> tuple[str, bool]:
    """Returns the text of a state, and whether it is complete."""
    parts = [part for part in (state.url, state.text) if part]
    if state.caption:
        parts.append("\n".join(affirmed(state.caption[:_STATE_CHARS])))
    return "\n".join(parts), bool(state.text or (captions_are_whole and state.caption))


def affirmed(caption: str) -> Iterator[str]:
    """Yields the sentences of a caption that do not describe missing content; quotations may."""
    quotes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        quotes.append(match[0])
        return f"\0{len(quotes) - 1}\0"

    text = _QUOTATION.sub(keep, caption.replace("\0", " "))
    denied = False  # the list that follows `it does not show:`
    for sentence in _SENTENCE.split(text):
        denied = denied and _ITEM.match(sentence) is not None
        if denied or _DENIAL.search(sentence):
            denied = denied or sentence.rstrip().endswith(":")
        else:
            yield re.sub("\0(\\d+)\0", lambda match: quotes[int(match[1])], sentence)


def _action_text(action: Action) -> str:
    return "\n".join(filter(None, (action.text, action.target, action.value)))[:_STATE_CHARS]


def _checked(claim: _Claim, record: _Record) -> CheckedClaim:
    made = CheckedClaim(kind=claim.kind, text=claim.text, status="not_checkable")
    if claim.kind == "action":
        return _checked_deed(made, claim.before, record)
    for i, text in record.states:
        if claim.finder(text):
            return replace(made, status="seen", step=i)
    for i, text in record.typed:
        if claim.finder(text):
            return replace(made, status="seen", step=i, reason="in the agent's own action")
    if (claim.asked or claim.finder)(record.goal):
        return replace(made, reason="only the request says it")
    if (other := _contradiction(claim, record)) is not None:
        return replace(made, status="contradicted", step=other[0], reason=f"there: {other[1]}")
    if record.open or not record.states:
        return replace(made, reason=f"the text of {record.open or 'all'} states is not known")
    return replace(made, status="never_seen")


def _contradiction(claim: _Claim, record: _Record) -> tuple[int, str] | None:
    """Returns the single other value that pages show after the label; None if there are several."""
    if claim.others is None or not (label := _label(claim.before)):
        return None
    values: dict[str, int] = {}
    for i, text in record.states:
        for value in claim.others(text, label):
            values.setdefault(value, i)
            if len(values) > 1:
                return None
    return next(((i, value) for value, i in values.items()), None)


def _label(before: str) -> str:
    """Returns the label before a value, as in `the order total is`; empty if there is none."""
    clause = re.split(r"[.!?;,\n]", _plain(before))[-1].rstrip()
    match = _LABEL.search(clause)
    words = match[1].split() if match else []
    while words and words[0] in _DETERMINERS:
        del words[0]
    return " ".join(words)


def _checked_deed(made: CheckedClaim, verb: str, record: _Record) -> CheckedClaim:
    """Checks a claimed deed against the last action that could have performed it."""
    kinds = _kinds(verb) or frozenset()
    if (
        index := next((i for i, action in reversed(record.actions) if action.kind in kinds), None)
    ) is not None:
        return replace(made, status="seen", step=index, reason="an action that can have done it")
    return replace(made, status="never_seen", reason="no action can have done it")
