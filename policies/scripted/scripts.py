"""Scripts for twenty-one MiniWoB++ tasks: generators that yield moves and receive the page.

A script uses its `Aim` for every choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from prill.policies.miniwob_text import PageElement, TextPage, named
from prill.types import Action

T = TypeVar("T")


@dataclass(frozen=True)
class Move:
    """An action, and the sentence that describes it afterwards.

    A commit ends the attempt on the page.
    """

    action: Action
    sentence: str
    commit: bool = False


Play = Generator[Move, TextPage, None]
Script = Callable[[str, TextPage, "Aim"], Play]


@dataclass(frozen=True)
class Aim:
    """A chooser of the right element or, to fail on purpose, of the next other one."""

    misses: bool = False

    def element(self, elements: Sequence[PageElement], name: str) -> PageElement:
        """Returns the element with this name. Raises LookupError if there is none."""
        right = named(tuple(elements), name)
        return self.other(right, elements, lambda element: element.name != name)

    def value(self, right: str, others: Sequence[str]) -> str:
        """Returns the right value, or one of the others."""
        return self.other(right, others, lambda value: value != right)

    def other(self, right: T, choices: Sequence[T], differs: Callable[[T], bool]) -> T:
        """Returns `right`, or the first choice after it that differs."""
        if not self.misses:
            return right
        start = choices.index(right) + 1 if right in choices else 0
        return next(
            (choice for choice in (*choices[start:], *choices[:start]) if differs(choice)), right
        )


def click(element: PageElement, *, commit: bool = False) -> Move:
    """Clicks the element."""
    action = Action("click", f"click {element.target}", target=element.target)
    return Move(action, f"I clicked {element.target}.", commit)


def enter(element: PageElement, value: str) -> Move:
    """Replaces the content of a field."""
    action = Action(
        "type", f"type {value!r} into {element.target}", target=element.target, value=value
    )
    return Move(action, f"I typed {value!r} into {element.target}.")


def choose(element: PageElement, value: str) -> Move:
    """Selects an entry of a list."""
    action = Action(
        "select", f"select {value!r} in {element.target}", target=element.target, value=value
    )
    return Move(action, f"I selected {value!r} in {element.target}.")


def quoted(goal: str) -> list[str]:
    """Returns every text in double quotes."""
    return re.findall(r'"([^"]*)"', goal)


def match_groups(pattern: str, goal: str) -> tuple[str, ...]:
    """Returns the groups of the pattern in the goal. Raises LookupError if it does not match."""
    match = re.search(pattern, goal)
    if match is None:
        raise LookupError(f"the goal does not have the expected form: {goal}")
    return match.groups()


def submit(page: TextPage) -> Move:
    """Clicks the last button, which sends the form in every task here."""
    return click(page.all("button")[-1], commit=True)


def click_button(goal: str, page: TextPage, aim: Aim) -> Play:
    yield click(aim.element(page.all("button"), quoted(goal)[0]), commit=True)


def click_link(goal: str, page: TextPage, aim: Aim) -> Play:
    yield click(aim.element(page.all("link"), quoted(goal)[0]), commit=True)


def click_test(goal: str, page: TextPage, aim: Aim) -> Play:
    yield click(
        aim.element(page.all("button"), match_groups(r"button (\w+)", goal)[0]), commit=True
    )


def click_dialog(goal: str, page: TextPage, aim: Aim) -> Play:
    name = quoted(goal)[0]
    yield click(aim.element(page.all("button"), "Close" if name == "x" else name), commit=True)


def click_tab(goal: str, page: TextPage, aim: Aim) -> Play:
    name = quoted(goal)[0]
    for tab in page.all("tab"):
        if not tab.is_("selected"):
            page = yield click(tab)
        links = page.all("link")
        if any(link.name == name for link in links):
            yield click(aim.element(links, name), commit=True)
            return
    raise LookupError(f"no tab has a link {name!r}")


def click_collapsible(goal: str, page: TextPage, aim: Aim) -> Play:
    if not aim.misses:
        page = yield click(page.all("tab")[0])
    yield submit(page)


def click_checkboxes(goal: str, page: TextPage, aim: Aim) -> Play:
    wanted = match_groups(r"Select (.*) and click Submit", goal)[0].split(", ")
    for box in page.all("checkbox"):
        # Select all other boxes, because one wrong box among many still gives a positive reward.
        if (box.name in wanted) != aim.misses:
            page = yield click(box)
    yield submit(page)


def click_option(goal: str, page: TextPage, aim: Aim) -> Play:
    name = match_groups(r"Select (.*) and click Submit", goal)[0]
    page = yield click(aim.element(page.all("radio"), name))
    yield submit(page)


def choose_list(goal: str, page: TextPage, aim: Aim) -> Play:
    name = match_groups(r"Select (.*) from the list", goal)[0]
    option = aim.element(page.all("option"), name)
    page = yield choose(page.all("combobox")[0], option.name)
    yield submit(page)


def scroll_list(goal: str, page: TextPage, aim: Aim) -> Play:
    wanted = match_groups(r"Select (.*) from the scroll list", goal)[0].split(", ")
    options = [option.name for option in page.all("option")]
    wrong = [name for name in options if name not in wanted]
    for name in wrong[: len(wanted)] if aim.misses else wanted:
        page = yield choose(page.all("listbox")[0], name)
    yield submit(page)


def enter_text(goal: str, page: TextPage, aim: Aim) -> Play:
    name = quoted(goal)[0]
    page = yield enter(page.all("textbox")[0], aim.value(name, [name[:-1]]))
    yield submit(page)


def enter_password(goal: str, page: TextPage, aim: Aim) -> Play:
    password = quoted(goal)[0]
    first, second = (field.target for field in page.all("textbox"))
    for target in (first, first if aim.misses else second):
        page = yield enter(
            next(field for field in page.all("textbox") if field.target == target), password
        )
    yield submit(page)


def login_user(goal: str, page: TextPage, aim: Aim) -> Play:
    values = quoted(goal)[:2]
    for at, value in enumerate(reversed(values) if aim.misses else values):
        page = yield enter(page.all("textbox")[at], value)
    yield submit(page)


def enter_date(goal: str, page: TextPage, aim: Aim) -> Play:
    day = datetime.strptime(match_groups(r"(\d\d/\d\d/\d{4})", goal)[0], "%m/%d/%Y")
    next_day = day + timedelta(days=1)
    page = yield enter(
        page.all("textbox")[0], aim.value(f"{day:%Y-%m-%d}", [f"{next_day:%Y-%m-%d}"])
    )
    yield submit(page)


def search_engine(goal: str, page: TextPage, aim: Aim) -> Play:
    query = quoted(goal)[0]
    index = int(match_groups(r"click the (\d+)", goal)[0]) - 1
    page = yield enter(page.all("textbox")[0], query)
    page = yield click(page.named("button", "Search"))
    if index >= 3:
        page = yield click(page.named("link", str(index // 3 + 1)))
    results = page.all("link")[:3]
    right = results[index % 3]
    yield click(aim.other(right, results, lambda link: link is not right), commit=True)


def use_autocomplete(goal: str, page: TextPage, aim: Aim) -> Play:
    start, end = (*quoted(goal), "")[:2]
    page = yield enter(page.all("textbox")[0], start)
    items = page.all("item", "menuitem", "option")
    fits = [item for item in items if item.name.startswith(start) and item.name.endswith(end)]
    if not fits:
        raise LookupError(f"no suggestion ends with {end!r}")
    page = yield click(aim.other(fits[0], items, lambda item: item not in fits))
    yield submit(page)


def social_media(goal: str, page: TextPage, aim: Aim) -> Play:
    user, button = match_groups(r"For the user (@\w+), click on the \"(.*)\" button", goal)
    posts = {target: who for target, who in _posts(page)}
    right = next((target for target, who in posts.items() if who == user), None)
    if right is None:
        raise LookupError(f"no post by {user}")
    post = aim.other(right, list(posts), lambda target: posts[target] != user)
    if button in ("Reply", "Retweet", "Like"):
        yield click(_after(page, post, lambda element: element.name == button.lower()), commit=True)
        return
    page = yield click(_after(page, post, lambda element: element.name == "more"))
    yield click(
        _after(
            page, post, lambda element: element.role == "item" and element.name.startswith(button)
        ),
        commit=True,
    )


def _posts(page: TextPage) -> list[tuple[str, str]]:
    heads = [(text.target, re.search(r"(@\w+)", text.name)) for text in page.all("text")]
    return [(target, match[1]) for target, match in heads if match]


def _after(page: TextPage, target: str, fits: Callable[[PageElement], bool]) -> PageElement:
    at = next(i for i, element in enumerate(page.elements) if element.target == target)
    for element in page.elements[at:]:
        if fits(element):
            return element
    raise LookupError(f"nothing suitable follows {target}")


def email_inbox(goal: str, page: TextPage, aim: Aim) -> Play:
    sender = match_groups(r"email by (\w+)", goal)[0]
    mails = page.all("item")
    right = next((mail for mail in mails if mail.name.split()[0] == sender), None)
    if right is None:
        raise LookupError(f"no email by {sender}")
    mail = aim.other(right, mails, lambda other: other.name.split()[0] != sender)
    for word, icon in (("delete", "trash"), ("important", "star")):
        if word in goal:
            yield click(named(mail.inside, icon), commit=True)
            return
    page = yield click(mail)
    reply = "reply" in goal
    page = yield click(page.named("icon", "email-reply" if reply else "email-forward"))
    value = quoted(goal)[0] if reply else match_groups(r"email to (\w+)", goal)[0]
    page = yield enter(page.all("textbox")[0], value)
    yield click(page.named("icon", "send-reply" if reply else "send-forward"), commit=True)


def read_table(goal: str, page: TextPage, aim: Aim) -> Play:
    key = match_groups(r"value of (.*) into", goal)[0]
    rows = {row.inside[0].name: row.inside[1].name for row in page.all("row")}
    if key not in rows:
        raise LookupError(f"the table has no {key!r}")
    page = yield enter(page.all("textbox")[0], aim.value(rows[key], list(rows.values())))
    yield submit(page)


def find_word(goal: str, page: TextPage, aim: Aim) -> Play:
    index = int(match_groups(r"Find the (\d+)", goal)[0]) - 1
    options = [
        re.sub(r"[^A-Za-z]", "", word)
        for word in " ".join(text.name for text in page.all("text")).split()
    ]
    page = yield enter(page.all("textbox")[0], aim.value(options[index], options))
    yield submit(page)


def simple_arithmetic(goal: str, page: TextPage, aim: Aim) -> Play:
    first, sign, second = match_groups(
        r"(\d+) (.) (\d+) =", " ".join(text.name for text in page.all("text"))
    )
    a, b = int(first), int(second)
    result = a + b if sign == "+" else a - b if sign == "-" else a * b
    page = yield enter(page.all("textbox")[0], aim.value(str(result), [str(result + 1)]))
    yield submit(page)


SCRIPTS: dict[str, Script] = {
    "choose-list": choose_list,
    "click-button": click_button,
    "click-checkboxes": click_checkboxes,
    "click-collapsible": click_collapsible,
    "click-dialog-2": click_dialog,
    "click-link": click_link,
    "click-option": click_option,
    "click-scroll-list": scroll_list,
    "click-tab-2": click_tab,
    "click-test-2": click_test,
    "email-inbox": email_inbox,
    "enter-date": enter_date,
    "enter-password": enter_password,
    "enter-text": enter_text,
    "find-word": find_word,
    "login-user": login_user,
    "read-table": read_table,
    "search-engine": search_engine,
    "simple-arithmetic": simple_arithmetic,
    "social-media": social_media,
    "use-autocomplete-nodelay": use_autocomplete,
}
