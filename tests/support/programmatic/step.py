"""A programmatic model that answers the prompts of the policy `step` on MiniWoB++, to test its
stack as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prill.models.ledger import count_usage
from prill.models.prompts import estimate_tokens
from prill.protocols import Message, Reply
from prill.types import Usage
from tests.support.programmatic.solver import Move, Node, plan

if TYPE_CHECKING:
    from prill.protocols import Form

_LINE = re.compile(r"<(\w+) id=(-?\d+) val=(.*) />")
_CALLABLE = re.compile(r"^`(\w+) \[.*?`: ", re.MULTILINE)
_DONE = re.compile(r"(?:click|type) \[(\d+)\](?: \[(.*)\])?", re.DOTALL)
_CALLED = re.compile(r"(?:.* = )?((\w+) \[.*\])")
_ARGUMENT = re.compile(r"\[(.*?)\]")
# The library's headings above the content of each turn.
_OBJECTIVE, _PAGE, _PREVIOUS = "OBJECTIVE: ", "\nOBSERVATION:\n", "\nPREVIOUS ACTIONS:\n"
_POLICIES = "Policies that you can call."


@dataclass(frozen=True)
class Asked:
    """The content of a prompt: the objective, the page, the policy's own moves and calls so far,
    and the callable policies.
    """

    objective: str
    screen: tuple[Node, ...]
    done: tuple[Move, ...]
    calls: tuple[str, ...]
    callable: frozenset[str]

    @staticmethod
    def read(messages: Sequence[Message]) -> Asked:
        """Parses the prompt. Raises LookupError if it is not a prompt of the policy `step`."""
        system, turn = (str(message.parts[0]) for message in messages)
        if not turn.startswith(_OBJECTIVE) or _PAGE not in turn:
            raise LookupError("this is no prompt of the policy step")
        objective, _, rest = turn.removeprefix(_OBJECTIVE).partition(_PAGE)
        objective = objective.partition("\nCODE: ")[0]
        page, _, after = rest.partition("\nURL: ")
        previous = after.partition(_PREVIOUS)[2].splitlines()
        lines = [line for line in map(_LINE.fullmatch, page.splitlines()) if line]
        moves = [_move(move) for move in map(_DONE.fullmatch, previous) if move]
        offered = system.partition(_POLICIES)[2].partition("\nAnswer in this form")[0]
        calls = (
            call
            for call in map(_CALLED.fullmatch, previous)
            if call and call[2] not in ("click", "type")
        )
        return Asked(
            objective,
            tuple(
                _node(tag, int(ref), value) for tag, ref, value in (line.groups() for line in lines)
            ),
            tuple(moves),
            tuple(call[1] for call in calls),
            frozenset(_CALLABLE.findall(offered)),
        )

    def says(self, *texts: str) -> list[Node]:
        """Returns the elements with one of these texts."""
        return [node for node in self.screen if node.text in texts]


class ByProgram:
    """A model that answers the policy `step`. `answer` reads the prompt and returns REASON and
    ACTION.

    It ends a task that it cannot do (LookupError) with `stop [N/A]`. `calls` counts the requests.
    """

    def __init__(self, name: str, answer: Callable[[Sequence[Message]], tuple[str, str]]) -> None:
        self._name, self._answer = name, answer
        self.calls = 0

    @property
    def name(self) -> str:
        """The name of the model in records."""
        return self._name

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Returns the next answer of the prompt's policy."""
        self.calls += 1
        try:
            reason, action = self._answer(messages)
        except LookupError as problem:
            reason, action = str(problem), "stop [N/A]"
        text = f"REASON: {reason}\nACTION: {action}"
        tokens = sum(estimate_tokens(str(part)) for message in messages for part in message.parts)
        usage = Usage(1, tokens, estimate_tokens(text))
        count_usage(usage)
        return Reply(text, usage, {})


class ProgrammaticStep(ByProgram):
    """Answers on MiniWoB++ like a good model: it calls the policies of the library where their
    rules require it.
    """

    def __init__(self, name: str = "programmatic-step") -> None:
        super().__init__(name, lambda messages: _answer(Asked.read(messages)))


def _answer(asked: Asked) -> tuple[str, str]:
    verb = asked.objective.partition(" [")[0]
    if verb in _CALLEES:
        return _CALLEES[verb](asked)
    if (call := _wanted_call(asked)) is not None:
        return "a rule asks for this policy", call
    if asked.calls and (move := _after_calls(asked)) is not None:
        return "the calls have done their part", _written(move)
    if asked.calls and asked.callable and not _offers_flights(asked):
        return "the calls have done it all", "stop []"
    return _planned(asked, asked.objective)


def _planned(asked: Asked, goal: str) -> tuple[str, str]:
    """Returns the first remaining move, from the objective's program."""
    moves = plan(goal, asked.screen, asked.done)
    return (
        ("the objective asks for it", _written(moves[0]))
        if moves
        else ("nothing is left to do", "stop []")
    )


def _wanted_call(asked: Asked) -> str | None:
    """Returns the first call that the rules require and that has not been made."""
    for policy, wanted in _CALLS.items():
        if policy in asked.callable:
            for call in wanted(asked):
                if call not in asked.calls:
                    return call
    return None


def _flight(asked: Asked) -> re.Match[str] | None:
    return re.search(
        r"from: (?P<origin>.+?) to: (?P<target>.+?) on (?P<date>\d+/\d+/\d+)", asked.objective
    )


def _texts(asked: Asked) -> list[str]:
    flight = _flight(asked)
    return (
        [
            f"fill_text [flight-from] [{flight['origin']}]",
            f"fill_text [flight-to] [{flight['target']}]",
        ]
        if flight
        else []
    )


def _dates(asked: Asked) -> list[str]:
    date = _flight(asked) or re.search(
        r"^Select (?P<date>\d+/\d+/\d+) as the date", asked.objective
    )
    return [f"choose_date [datepicker] [{date['date']}]"] if date else []


def _results(asked: Asked) -> list[str]:
    place = re.search(r"click the (\d+)\w\w search result", asked.objective)
    searched = place and len(asked.done) >= 2
    return [f"find_and_click_search_link [{place[1]}]"] if place and searched else []


def _boxes(asked: Asked) -> list[str]:
    ticked = any(node.tag == "input_checkbox" for node in asked.screen)
    return (
        [f"click_checkboxes [{asked.objective}]"]
        if ticked and asked.objective.startswith("Select")
        else []
    )


def _mails(asked: Asked) -> list[str]:
    return [f"process_email [{asked.objective}]"] if asked.says("open-search") else []


# In the order of filling a form.
_CALLS: Mapping[str, Callable[[Asked], list[str]]] = {
    "fill_text": _texts,
    "choose_date": _dates,
    "find_and_click_search_link": _results,
    "click_checkboxes": _boxes,
    "process_email": _mails,
}


def _offers_flights(asked: Asked) -> bool:
    return any(node.text.startswith("Book flight for") for node in asked.screen)


def _after_calls(asked: Asked) -> Move | None:
    """Returns a click on the button that submits what the calls have filled."""
    button = next((node for node in asked.says("Submit", "Search") if node.tag == "button"), None)
    move = None if button is None else Move("click", button.ref)
    return move if _dates(asked) and move not in asked.done else None


def _fill_text(asked: Asked) -> tuple[str, str]:
    field, text = _arguments(asked, 2)
    if not asked.done:
        return "the field is empty", _written(Move("type", _field(asked, field).ref, text))
    if len(asked.done) == 1:
        for node in asked.screen:
            city, _, code = node.text.partition(" (")
            if code and text in (city, code.rstrip(")")) and not node.tag.startswith("input"):
                return "it is among the suggestions", _written(Move("click", node.ref))
    return "the field is filled", "stop []"


def _choose_date(asked: Asked) -> tuple[str, str]:
    field, date = _arguments(asked, 2)
    moves = (
        plan(f"Select {date} as the date and hit submit.", asked.screen, asked.done)
        if asked.done
        else []
    )
    days = {node.ref for node in asked.screen if node.tag == "a" or node.text in ("Prev", "Next")}
    if not asked.done:
        return "no calendar is open", _written(Move("click", _field(asked, field).ref))
    if moves and moves[0].ref in days:
        return "the calendar leads there", _written(moves[0])
    return "the field has its date", "stop []"


def _search_link(asked: Asked) -> tuple[str, str]:
    place = int(_arguments(asked, 1)[0])
    addresses = [at for at, node in enumerate(asked.screen) if node.text.startswith("https://")]
    links = [asked.screen[at - 1] for at in addresses]
    # The link > has another number on every page, so the number of clicks so far is the number of
    # turned pages.
    turned = len(asked.done)
    if place > 3 * (turned + 1):
        return "it comes later", _written(Move("click", asked.says(">")[-1].ref))
    if place <= 3 * turned or not links:
        return "the result was clicked", "stop []"
    return "it is on this page", _written(Move("click", links[place - 1 - 3 * turned].ref))


def _whole(asked: Asked) -> tuple[str, str]:
    """Answers for a policy that receives the whole objective."""
    return _planned(asked, asked.objective.partition(" [")[2].removesuffix("]"))


_CALLEES: Mapping[str, Callable[[Asked], tuple[str, str]]] = {
    "fill_text": _fill_text,
    "choose_date": _choose_date,
    "find_and_click_search_link": _search_link,
    "click_checkboxes": _whole,
    "process_email": _whole,
}


def _arguments(asked: Asked, count: int) -> list[str]:
    found = _ARGUMENT.findall(asked.objective)
    if len(found) != count:
        raise LookupError(f"{asked.objective!r}: expected {count} in brackets")
    return found


def _field(asked: Asked, name: str) -> Node:
    for node in asked.says(name):
        return node
    raise LookupError(f"no field is called {name!r}")


def _move(written: re.Match[str]) -> Move:
    if written[2] is None:
        return Move("click", int(written[1]))
    return Move("type", int(written[1]), written[2])


def _written(move: Move) -> str:
    if move.kind == "type":
        return f"type [{move.ref}] [{move.text}]"
    return f"click [{move.ref}]" if move.kind == "click" else f"press [{move.text}]"


def _node(tag: str, ref: int, value: str) -> Node:
    """Returns the element. A ticked box shows that as its value."""
    ticked = tag in ("input_checkbox", "input_radio") and value == "True"
    return Node(ref, tag, "" if ticked else value, {"checked": ""} if ticked else {})
