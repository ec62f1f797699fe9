"""Programs for forms: text fields, checkboxes and lists, followed by a submit button."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.support.programmatic.screen import Move, Node, Page, click, detect_kind, enter
from tests.support.programmatic.tasks.thesaurus import similar


def _handed_in(page: Page, moves: Iterable[Move]) -> list[Move]:
    return page.left([*moves, click(page.end())])


def _typed(match: re.Match[str], page: Page) -> list[Move]:
    return _handed_in(page, [enter(page.field(), match["text"])])


def _other_case(match: re.Match[str], page: Page) -> list[Move]:
    text = match["text"].upper() if match["case"] == "upper" else match["text"].lower()
    return _handed_in(page, [enter(page.field(), text)])


def _twice(match: re.Match[str], page: Page) -> list[Move]:
    return _handed_in(page, [enter(field, match["text"]) for field in page.fields()])


def _login(match: re.Match[str], page: Page) -> list[Move]:
    """Enters name and password. A question locks the fields; after the answer, the fields are
    filled again.
    """
    if refusal := page.saying("Cancel"):
        return [click(refusal[0])]
    user, password = page.field(1), page.field(2)
    moves = [enter(user, match["user"]), enter(password, match["password"]), click(page.end())]
    known = {move.ref for move in moves}
    done = list(page.done)
    for place in reversed([place for place, move in enumerate(done) if move.ref not in known]):
        del done[max(0, place - 1) : place + 1]
    left = Page(page.nodes, page.instruction, done).left(moves)
    # If the form asks a question, shown by its button, one field at a time is filled.
    return left[:1] if page.end().text.strip() == "OK" else left


def _ticked(match: re.Match[str], page: Page) -> list[Move]:
    wanted = _listed(match["names"])
    return _handed_in(page, [click(_choice(page, name)) for name in wanted])


def _choice(page: Page, name: str) -> Node:
    for words, node in page.choices():
        if words == name:
            return node
    return page.one(name)


def _ticked_similar(match: re.Match[str], page: Page) -> list[Move]:
    wanted = _listed(match["names"])
    return _handed_in(
        page,
        [
            click(node)
            for words, node in page.choices()
            if any(similar(words, word) for word in wanted)
        ],
    )


def _listed(names: str) -> list[str]:
    return [] if names == "nothing" else names.split(", ")


def _options(match: re.Match[str], page: Page) -> list[Move]:
    """Selects options. Country names contain commas, so every option that the goal contains is
    selected.
    """
    names, found = f", {match['names']}, ", []
    for node in page.nodes:
        if detect_kind(node) == "option" and f", {node.text.strip()}, " in names:
            found.append(click(node))
    if not found:
        raise LookupError(f"no option says {match['names']!r}")
    return _handed_in(page, found)


def _copied(match: re.Match[str], page: Page) -> list[Move]:
    place = int(match["place"] or 1)
    texts = page.of_kind("textarea")
    if len(texts) < place:
        raise LookupError(f"there is no text number {place} to copy")
    return _handed_in(page, [enter(page.field(), texts[place - 1].text)])


def _word(match: re.Match[str], page: Page) -> list[Move]:
    paragraph = next(
        (node.text for node in page.nodes if node.tag.lower() == "p" and node.text), ""
    )
    words, place = re.findall(r"[^\s.,]+", paragraph), int(match["place"])
    if len(words) < place:
        raise LookupError(f"the paragraph has no word number {place}")
    return _handed_in(page, [enter(page.field(), words[place - 1])])


def _shown_text(match: re.Match[str], page: Page) -> list[Move]:
    letters = "".join(node.text for node in page.nodes if node.tag.lower() in ("span", "t"))
    return _handed_in(page, [enter(page.field(), letters)])


def _movie(match: re.Match[str], page: Page) -> list[Move]:
    """Fills the movie form. Labels are before or after their fields, but always in the same
    order.
    """
    wanted = {
        "genre": match["genre"],
        "director": match["director"],
        "year": match["year"],
        "date": match["year"],
    }
    labels = [
        word
        for node in page.nodes
        for word in wanted
        if word in node.text.lower().split(":")[0].split()
    ]
    return _handed_in(
        page,
        [enter(field, wanted[label]) for label, field in zip(labels, page.fields(), strict=False)],
    )


def _cell(match: re.Match[str], page: Page) -> list[Move]:
    return _handed_in(page, [enter(page.field(), _beside(page, match["label"]))])


def _cells(match: re.Match[str], page: Page) -> list[Move]:
    labels = [found["label"] for _, found in page.matching(r"(?P<label>.+):")]
    return _handed_in(
        page,
        [
            enter(field, _beside(page, label))
            for label, field in zip(labels, page.fields(), strict=False)
        ],
    )


def _beside(page: Page, label: str) -> str:
    for node in page.saying(label):
        if rest := page.after(node):
            return rest[0].text.strip()
    raise LookupError(f"the table has no {label!r}")


def _sum(match: re.Match[str], page: Page) -> list[Move]:
    for _, found in page.matching(r"(-?\d+) ?([-+x*×]) ?(-?\d+) ?=.*"):
        first, sign, second = int(found[1]), found[2], int(found[3])
        result = (
            first + second if sign == "+" else first - second if sign == "-" else first * second
        )
        return _handed_in(page, [enter(page.field(), str(result))])
    raise LookupError("no sum is shown")


def _equation(match: re.Match[str], page: Page) -> list[Move]:
    for _, found in page.matching(r"(x|-?\d+) ?([-+]) ?(x|-?\d+) ?= ?(-?\d+)"):
        first, sign, second, right = found.groups()
        if sign == "+":
            result = int(right) - int(second if first == "x" else first)
        else:
            result = int(right) + int(second) if first == "x" else int(first) - int(right)
        return _handed_in(page, [enter(page.field(), str(result))])
    raise LookupError("no equation is shown")


def _spinner(match: re.Match[str], page: Page) -> list[Move]:
    """Clicks the arrows of the spinner, which accepts no keys. Its value determines the number of
    clicks.
    """
    held = re.fullmatch(r"-?\d+", page.field().text.strip())
    missing = int(match["number"]) - int(held[0] if held else 0)
    arrows = page.named("ui-spinner-up" if missing > 0 else "ui-spinner-down")
    if not arrows:
        raise LookupError("there is no spinner")
    return [*[click(arrows[0])] * abs(missing), *page.left([click(page.end())])]


def _slider(match: re.Match[str], page: Page) -> list[Move]:
    """Moves the slider by keys: by pages while the value is far, then by single steps. Its value
    determines the number of keys.
    """
    handle = next(iter(page.named("ui-slider-handle")), None)
    shown = page.matching(r"-?\d+")
    if handle is None or not shown:
        raise LookupError("there is no slider")
    missing = int(match["number"]) - int(shown[0][0].text)
    focus = [] if page.clicked(handle) else [click(handle)]
    if abs(missing) > 12:
        return [*focus, Move("press", text="PageUp" if missing > 0 else "PageDown")]
    steps = [Move("press", text="ArrowRight" if missing > 0 else "ArrowLeft")] * abs(missing)
    return [*focus, *steps, *page.left([click(page.end())])]


PROGRAMS = {
    r'^Enter the password "(?P<text>.+?)" into both': _twice,
    r'^Enter the username "(?P<user>.+?)" and the password "(?P<password>.+?)"': _login,
    r"^Enter the value of (?P<label>.+?) into the text field": _cell,
    r"^Enter the value that corresponds with each label": _cells,
    r'^Enter "(?P<text>.*?)" into the text field': _typed,
    r'^Type "(?P<text>.*?)" in all (?P<case>upper|lower) case': _other_case,
    r"^Type the text below": _shown_text,
    r"^Copy the text (?:from|in) the (?:(?P<place>\d)\w\w text area|textarea)": _copied,
    r"^Find the (?P<place>\d+)\w\w word in the paragraph": _word,
    r"^Search for (?P<genre>.+?) movies directed by (?P<director>.+?) from year (?P<year>\d+)": _movie,  # noqa: E501
    r"^Solve the math problem": _sum,
    r"^Solve for x": _equation,
    r"^Select words similar to (?P<names>.+?) and click Submit": _ticked_similar,
    r"^Select (?P<number>-?\d+) with the spinner": _spinner,
    r"^Select (?P<number>-?\d+) with the slider": _slider,
    r"^Select (?P<names>.+?) from the (?:scroll )?list and click Submit": _options,
    r"^Select (?P<names>.+?) and click Submit": _ticked,
}
