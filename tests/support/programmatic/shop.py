"""A programmatic model that answers the prompts of the policy `step` on the local shop, its related
sites and the airline's site.

It uses only what the prompt shows: the objective, the page as lines `[12] link 'Cart'`, the
policy's own history, and the callable policies. Objectives identify root policies; a leading verb
identifies called ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from prill.protocols import Message
from tests.support.programmatic.step import ByProgram

_LINE = re.compile(
    r"(?P<tabs>\t*)\[(?P<number>\d+)\] (?P<role>\w+) (?P<name>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?P<state>.*)"  # noqa: E501
)
_OBJECTIVE, _PAGE, _URL = "OBJECTIVE: ", "\nOBSERVATION:\n", "\nURL: "
_HISTORY = re.compile(r"\nPREVIOUS ACTIONS:\n\[previous .*?\]\n(.*)\n\[/previous ", re.DOTALL)
_CALL = re.compile(r"(?P<answer>.*?) = (?P<verb>\w+) \[.*\]|(?P<bare>\w+) \[.*\]")
_SCROLLS = 8
_ROW = re.compile(r"(?P<leaves>\d\d:\d\d) \w+ (?P<arrives>\d\d:\d\d) ")


@dataclass(frozen=True)
class Element:
    """A line of the page. `held` is the value of a field, or the selected entry of a list."""

    number: str
    role: str
    name: str
    state: str
    held: str = ""
    region: str = ""


@dataclass(frozen=True)
class Screen:
    """The content of a prompt: the objective, the page, the policy's own history."""

    objective: str
    elements: tuple[Element, ...]
    history: tuple[str, ...]

    @classmethod
    def read(cls, messages: Sequence[Message]) -> Screen:
        """Parses the prompt. Raises LookupError if it is not a prompt of the policy `step`."""
        turn = str(messages[-1].parts[0])
        if not turn.startswith(_OBJECTIVE) or _PAGE not in turn:
            raise LookupError("this is no prompt of the policy step")
        objective, _, rest = turn.removeprefix(_OBJECTIVE).partition(_PAGE)
        page, _, after = rest.partition(_URL)
        # Between the quotation marks; a prompt without a history has none.
        history = _HISTORY.search(after)
        return cls(
            objective, tuple(_elements(page)), tuple(history[1].splitlines()) if history else ()
        )

    @property
    def title(self) -> str:
        """The title of the page."""
        return next((each.name for each in self.elements if each.role == "RootWebArea"), "")

    def find(self, role: str, name: str) -> Element:
        """Returns the element. Raises LookupError."""
        if (found := self.maybe(role, name)) is None:
            raise LookupError(f"the page shows no {role} {name!r}")
        return found

    def maybe(self, role: str, name: str) -> Element | None:
        """Returns the element, or None if it is not shown."""
        return next(
            (each for each in self.elements if (each.role, each.name) == (role, name)), None
        )

    def says(self, words: str) -> bool:
        """Returns whether a line has exactly this text."""
        return any(each.name == words for each in self.elements)

    def answer(self, verb: str) -> str | None:
        """Returns the response of the last call of that policy. None if it was not called."""
        for line in reversed(self.history):
            if (call := _CALL.fullmatch(line)) and verb in (call["verb"], call["bare"]):
                return call["answer"] or ""
        return None


class ProgrammaticShop(ByProgram):
    """Answers on the local shop, its related sites and the airline's site."""

    def __init__(self, name: str = "programmatic-shop") -> None:
        super().__init__(name, lambda messages: _answer(Screen.read(messages)))


Answer = tuple[str, str]


def _answer(screen: Screen) -> Answer:
    for pattern, program in _PROGRAMS.items():
        if match := re.fullmatch(pattern, screen.objective, re.DOTALL):
            return program(screen, match)
    raise LookupError(f"no program knows the objective {screen.objective!r}")


def _click(element: Element, why: str) -> Answer:
    return why, f"click [{element.number}]"


def _type(element: Element, words: str) -> Answer:
    return f"{element.name} is to hold it", f"type [{element.number}] [{words}] [0]"


def _next(screen: Screen, *steps: tuple[str, str]) -> Answer | None:
    """Returns a click on the first of these that the page shows."""
    for role, name in steps:
        if (element := screen.maybe(role, name)) is not None:
            return _click(element, f"{name} leads on")
    return None


# The shop, the forum, the projects, the administration.


def _who_reviewed(screen: Screen, match: re.Match[str]) -> Answer:
    found = screen.answer("search_reviews")
    if found is None:
        return (
            "reviews are for search_reviews",
            f"search_reviews [{match['product']}: who says that {match['what']}?]",
        )
    names = [record.partition(":")[0] for record in found.split("; ")]
    return "this is what it handed back", f"stop [{', '.join(names)}]"


def _search_reviews(screen: Screen, match: re.Match[str]) -> Answer:
    product, word = match["product"], match["what"].split()[-1]
    if screen.title != product:
        return _click(screen.find("link", product), "the product is opened first")
    notes = [
        line.removeprefix("note [").removesuffix("]")
        for line in screen.history
        if line.startswith("note [")
    ]
    texts = [each.name for each in screen.elements if each.role == "StaticText"]
    for text, signed in pairwise(texts):
        if (author := re.fullmatch(r"Review by (.+), \S+", signed)) and re.search(
            rf"\b{word}\b", text
        ):
            record = f"{author[1]}: {text.partition('stars. ')[2]}"
            if record not in notes:
                return "this review says so", f"note [{record}]"
    if screen.maybe("contentinfo", "") is None and screen.history.count("scroll [down]") < _SCROLLS:
        return "there may be more below", "scroll [down]"
    return "all reviews were read", f"stop [{'; '.join(notes) or 'N/A'}]"


def _show_sorted(screen: Screen, match: re.Match[str]) -> Answer:
    if screen.answer("list_products") is None:
        return "lists are for list_products", "list_products [Lighting, the cheapest first]"
    return "the page is as it should be", "stop []"


def _list_products(screen: Screen, match: re.Match[str]) -> Answer:
    if screen.title != match["category"]:
        return _click(screen.find("link", match["category"]), "the category is opened first")
    if any(line.startswith("click") for line in screen.history[1:]):
        return "the list is sorted", "stop [N/A]"
    return _click(screen.find("link", "Sort by Price"), "the cheapest come first by price")


def _post(screen: Screen, match: re.Match[str]) -> Answer:
    title = match["title"]
    if screen.answer("find_subreddit") is None:
        return "the forum is found first", f"find_subreddit [{title}]"
    if screen.title == title:
        return "the post is there", "stop []"
    if (box := screen.maybe("textbox", "Title")) is not None:
        return (
            _type(box, title)
            if box.held != title
            else _click(screen.find("button", "Create submission"), "it is filled in")
        )
    submit = next(
        (
            each
            for each in screen.elements
            if each.role == "link" and each.name.startswith("Submit to ")
        ),
        None,
    )
    if submit is None:
        raise LookupError("no forum is open")
    return _click(submit, "this forum takes it")


def _find_subreddit(screen: Screen, match: re.Match[str]) -> Answer:
    if any(each.name.startswith("Submit to ") for each in screen.elements):
        return "the forum is open", "stop [N/A]"
    topic = _stems(match["topic"])
    forums = [
        (len(topic & _stems(f"{link.name} {about.name}")), link)
        for link, about in pairwise(screen.elements)
        if link.role == "link" and about.role == "StaticText"
    ]
    if not forums:
        raise LookupError("no forum is listed")
    return _click(max(forums, key=lambda pair: pair[0])[1], "this forum comes closest")


def _stems(words: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w{4,}", words.lower())}


def _give_role(screen: Screen, match: re.Match[str]) -> Answer:
    if screen.title != "Project members":
        if (step := _next(screen, ("link", "Members"), ("link", match["project"]))) is None:
            raise LookupError("there is no such project")
        return step
    names = [each.name for each in screen.elements]
    if any(name.endswith(f"@{match['user']}") for name in names):
        return "the member is listed", "stop []"
    box, role = screen.find("textbox", "Username"), screen.find("radio", match["role"])
    if box.held != match["user"]:
        return _type(box, match["user"])
    if "checked: true" not in role.state:
        return _click(role, "the role is chosen")
    return _click(screen.find("button", "Invite"), "the form is complete")


def _change_product(screen: Screen, match: re.Match[str]) -> Answer:
    product = match["product"]
    if screen.says("You saved the product."):
        return "the page says that it is saved", "stop []"
    if (price := screen.maybe("textbox", "Price")) is None:
        if (step := _next(screen, ("link", f"Edit {product}"), ("link", "Products"))) is None:
            raise LookupError("this is not the administration")
        return step
    stock = screen.maybe("textbox", "Quantity")
    for box, wanted in ((price, match["price"]), (stock, match["stock"])):
        if box is None:
            return _click(screen.find("button", "Inventory"), "the stock is folded away")
        if box.held != wanted:
            return _replace(screen, box, wanted)
    return _click(screen.find("button", "Save"), "both are right")


def _replace(screen: Screen, box: Element, words: str) -> Answer:
    """Returns an answer that clears the field, key by key, or fills it."""
    last = screen.history[-1] if screen.history else ""
    if not box.held:
        return _type(box, words)
    if last == f"click [{box.number}]":
        return "all of it is marked", "press [Control+a]"
    return (
        ("and deleted", "press [Delete]")
        if last == "press [Control+a]"
        else _click(box, f"{box.name} holds something else")
    )


# The airline's desk.


def _airline(screen: Screen, match: re.Match[str], *, wish: str) -> Answer:
    """Handles one page after the other. The page's title shows the progress of the request."""
    fields = match.groupdict()
    if screen.title == "AirlineCRM":
        return _click(
            screen.find("link", "Find booking" if "code" in fields else "Find flights"),
            "it begins there",
        )
    if screen.title == "Find booking":
        return _filled(screen, {"Confirmation code": fields["code"]}, "Search")
    if screen.title.startswith("Booking"):
        return _on_booking(screen, fields, wish)
    if screen.title == "Find flights":
        trip = {
            "From": fields["origin"],
            "To": fields["target"],
            "Departure date": fields["out"],
            "Return date": fields["back"],
        }
        return _filled(screen, trip, "Search flights")
    if screen.title == "Choose flights":
        call = (
            f"select_flight [outbound leaves at {fields['leaves']}, return arrives at "
            f"{fields['arrives']}]"
        )
        if screen.answer("select_flight") is None and call not in screen.history:
            return "both rows are picked by select_flight", call
        return (
            _click(screen.find("button", "Checkout"), "both are chosen")
            if wish == "book"
            else ("it is found", "stop []")
        )
    if screen.title == "Payment details":
        labels = {
            "card": "Card number",
            "expiry": "Expiry",
            "security": "Security code",
            "holder": "Name on card",
        }
        return _filled(
            screen, {label: fields[name] for name, label in labels.items()}, "Pay and book"
        )
    return _filled(screen, _passenger(fields["passenger"]), "Save changes")


def _on_booking(screen: Screen, fields: Mapping[str, str], wish: str) -> Answer:
    if wish == "cancel" and screen.maybe("dialog", "Cancel booking") is not None:
        return _filled(screen, {"Confirmation code": fields["code"]}, "Confirm cancellation")
    button = {"cancel": "Cancel booking", "update": "Modify booking"}.get(wish)
    done = button is None or screen.says("Cancelled") or screen.says("The changes are saved.")
    return (
        ("the page says so", "stop []")
        if done
        else _click(screen.find("button", str(button)), "the booking is open")
    )


def _passenger(words: str) -> dict[str, str]:
    labels = ("Title", "First name", "Last name", "Gender", "Date of birth", "Email")
    found = {label: re.search(rf"(?:^|, ){label.lower()} (.+?)(?=, |$)", words) for label in labels}
    return {label: match[1] for label, match in found.items() if match}


def _filled(screen: Screen, fields: Mapping[str, str], button: str) -> Answer:
    """Fills the first field without its value, or presses the button if all fields are filled."""
    for name, value in fields.items():
        if _box(screen, name).held != value:
            verb = "choose_date" if "date" in name.lower() else "fill_text"
            return f"{name} is for {verb}", f"{verb} [{name}] [{value}]"
    return _click(screen.find("button", button), "all fields are right")


def _box(screen: Screen, name: str) -> Element:
    return screen.maybe("textbox", name) or screen.find("combobox", name)


def _fill_text(screen: Screen, match: re.Match[str]) -> Answer:
    box = _box(screen, match["field"])
    return (
        ("the field holds it", "stop []")
        if box.held == match["value"]
        else ("it does not yet", f"type [{box.number}] [{match['value']}]")
    )


def _select_flight(screen: Screen, match: re.Match[str]) -> Answer:
    for region, time in (("Outbound", "leaves"), ("Return", "arrives")):
        rows = [
            each
            for each in screen.elements
            if each.role == "button" and each.region.startswith(region)
        ]
        row = next(
            (
                each
                for each in rows
                if (times := _ROW.match(each.name)) and times[time] == match[time]
            ),
            None,
        )
        if row is None:
            raise LookupError(f"no {region.lower()} flight {time} at {match[time]}")
        if "pressed: true" not in row.state:
            return _click(row, f"it {time} at {match[time]}")
    return "both rows are pressed", "stop []"


_TRIP = (
    r"from (?P<origin>.+?) to (?P<target>.+?), leaving on (?P<out>\S+) at (?P<leaves>\S+), "
    r"and back on (?P<back>\S+) with the flight that arrives at (?P<arrives>\d\d:\d\d)"
)
_CARD = (
    r"Pay with the card number (?P<card>\d+), expiry (?P<expiry>\S+), security code (?P<security>\d+), "  # noqa: E501
    r"name on card (?P<holder>.+)"
)
_PROGRAMS: Mapping[str, Callable[[Screen, re.Match[str]], Answer]] = {
    r"Who wrote in a review of the (?P<product>.+?) that (?P<what>.+?)\?.*": _who_reviewed,
    r"search_reviews \[(?P<product>.+?): who says that (?P<what>.+?)\?\]": _search_reviews,
    r"Show me .*lamps, with the cheapest first\.": _show_sorted,
    r"list_products \[(?P<category>.+?), the cheapest first\]": _list_products,
    r'Ask "(?P<title>.+)" in the forum where it fits best\.': _post,
    r"find_subreddit \[(?P<topic>.+)\]": _find_subreddit,
    r"Give @(?P<user>\w+) the role (?P<role>\w+) in the project (?P<project>[\w-]+)\.": _give_role,
    r"Set the price of the (?P<product>.+) to \$(?P<price>[\d.]+) and its stock to (?P<stock>\d+)\.": _change_product,  # noqa: E501
    r"Find the booking with the confirmation code (?P<code>\w+)\.": partial(_airline, wish="find"),
    r"Cancel the booking with the confirmation code (?P<code>\w+)\.": partial(
        _airline, wish="cancel"
    ),
    rf"Find a flight: {_TRIP}\. Choose both flights\.": partial(_airline, wish="search"),
    r"Find the booking (?P<code>\w+) and change its passenger: (?P<passenger>.+)\.": partial(
        _airline, wish="update"
    ),
    rf"Book a flight: {_TRIP}\. The passenger: (?P<passenger>.+)\. {_CARD}\.": partial(
        _airline, wish="book"
    ),
    r"(?:fill_text|choose_date) \[(?P<field>.+?)\] \[(?P<value>.+)\]": _fill_text,
    r"select_flight \[outbound leaves at (?P<leaves>\S+), return arrives at (?P<arrives>\S+)\]": _select_flight,  # noqa: E501
}


def _elements(page: str) -> Iterator[Element]:
    lines = [line for line in map(_LINE.fullmatch, page.splitlines()) if line]
    region = ""
    for place, line in enumerate(lines):
        name = str(ast.literal_eval(line["name"]))
        if line["role"] == "region":
            region = name
        inside = []
        for other in lines[place + 1 :]:
            if len(other["tabs"]) <= len(line["tabs"]):
                break
            inside.append(other)
        yield Element(
            line["number"], line["role"], name, line["state"], _held(line["role"], inside), region
        )


def _held(role: str, inside: Sequence[re.Match[str]]) -> str:
    if role == "combobox":
        inside = [line for line in inside if "selected: True" in line["state"]]
    elif role not in ("textbox", "searchbox"):
        return ""
    return str(ast.literal_eval(inside[0]["name"])) if inside else ""
