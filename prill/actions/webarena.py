"""Parses and formats actions in WebArena's grammar (arXiv 2307.13854)."""

from __future__ import annotations

import re

from prill.actions.keys import key_names
from prill.types import Action

_VERB = re.compile(r"([a-z_]+)\s*(?:\[(.*)\]\s*)?", re.DOTALL)
# Logs name the element: `click [7] where [7] is [7] link 'Cart'`; some releases leave out the third
# number.
_NAMED = re.compile(r"(.*?)\swhere \[([^\[\]]*)\] is (?:\[\2\] ?)?(.*)", re.DOTALL)
_PRESSES_ENTER = re.compile(r"\]\s*\[[01]\Z")
_KINDS = {
    "click": "click",
    "hover": "hover",
    "type": "type",
    "press": "press",
    "scroll": "scroll",
    "goto": "goto",
    "new_tab": "new_tab",
    "close_tab": "close_tab",
    "go_back": "back",
    "go_forward": "forward",
    "tab_focus": "focus_tab",
    "page_focus": "focus_tab",
    "stop": "stop",
    # not among WebArena's
    "upload": "upload",
    "wait": "wait",
}
_VERBS = {kind: verb for verb, kind in _KINDS.items() if verb != "page_focus"}
_ON_ELEMENTS = ("click", "hover", "type", "upload")
_BARE = ("new_tab", "close_tab", "go_back", "go_forward", "wait")
_HARNESS = ("Early stop:", "ERROR:")
_FORMS = {
    "click": "click [id]",
    "hover": "hover [id]",
    "type": "type [id] [text] [press Enter after: 0 or 1]",
    "press": "press [key]",
    "scroll": "scroll [up] or scroll [down]",
    "goto": "goto [url]",
    "tab_focus": "tab_focus [number]",
    "page_focus": "tab_focus [number]",
    "upload": "upload [id] [file]",
}
_ARGUMENTS = {
    "click": re.compile(r"\[(\d+)\]"),
    "hover": re.compile(r"\[(\d+)\]"),
    "type": re.compile(r"\[(\d+)\]\s*\[(.*)\]\s*\[([01])\]", re.DOTALL),
    "press": re.compile(r"\[(.+)\]"),
    "scroll": re.compile(r"\[?\s*(up|down)\b"),
    "goto": re.compile(r"\[(.+)\]"),
    "tab_focus": re.compile(r"\[(\d+)\]"),
    "page_focus": re.compile(r"\[(\d+)\]"),
    "upload": re.compile(r"\[(\d+)\]\s*\[(.+)\]", re.DOTALL),
}
_NUMBER = re.compile(r"\[?(\d+)\]?")


class UnreadableActionError(ValueError):
    """Raised for text that is not an action of the grammar.

    The message says what was expected and can be shown to an agent.
    """


def parse_action(text: str) -> Action:
    """Parses an action from a log and keeps its `text`; unknown verbs become kind `other`.

    `target` is the element's description if the text has one, else its number. Whether Enter was
    pressed after typing is not kept.
    """
    text = text.strip()
    call, element = text, None
    if named := _NAMED.fullmatch(text):
        call, element = named[1].rstrip(), named[3].strip() or None
    match = _VERB.fullmatch(call)
    if match is None or match[1] not in _KINDS:
        return Action("other", text)
    verb, inner = match[1], match[2]
    if verb not in _ON_ELEMENTS:
        return Action(_KINDS[verb], text, value=inner or None)
    if inner is None:
        return Action("other", text)
    number, _, typed = inner.partition("]")
    typed = typed.lstrip().removeprefix("[")
    value = {"type": _PRESSES_ENTER.sub("", typed), "upload": typed}.get(verb)
    return Action(_KINDS[verb], text, target=element or number, value=value)


def read_action(text: str) -> Action:
    """Parses an action that an agent wrote into one that a browser can execute.

    `target` is `[number]`, and Enter is a line break after the text. The rules are WebArena's: the
    verb is the text before the first bracket, else the first word; `type` presses Enter unless it
    ends in `[0]`; `stop` without a bracket has an empty answer. Raises UnreadableActionError for
    anything else.
    """
    text = text.strip()
    verb = text.partition("[")[0].strip() if "[" in text else (text.split() or [""])[0]
    rest = text.removeprefix(verb).lstrip()
    if verb in _BARE:
        return Action(_KINDS[verb], text)
    if verb == "stop":
        return Action(
            "stop",
            text,
            value=rest[1 : rest.rindex("]")] if rest.startswith("[") and "]" in rest else "",
        )
    if verb not in _ARGUMENTS:
        raise UnreadableActionError(
            f"{_short(text)} is not an action; the actions are {', '.join(dict.fromkeys(_KINDS))}"
        )
    if (
        (named := _NAMED.fullmatch(rest))
        and named[1].startswith(f"[{named[2]}]")
        and named[1].rstrip().endswith("]")
    ):
        rest = named[1].rstrip()  # agents copy the format of the log
    if verb == "type" and not rest.endswith(("[0]", "[1]")):
        rest += " [1]"
    arguments = _ARGUMENTS[verb].match(rest)
    if arguments is None:
        raise UnreadableActionError(f"{_short(text)} cannot be parsed; expected {_FORMS[verb]}")
    if verb == "type":
        return Action(
            "type",
            text,
            target=f"[{arguments[1]}]",
            value=arguments[2] + ("\n" if arguments[3] == "1" else ""),
        )
    if verb in _ON_ELEMENTS:
        value = arguments[2].strip() if verb == "upload" else None
        return Action(verb, text, target=f"[{arguments[1]}]", value=value)
    return Action(
        _KINDS[verb],
        text,
        value=key_names(arguments[1]) if verb == "press" else arguments[1].strip(),
    )


def write_action(action: Action, number: str | None = None) -> str | None:
    """Formats the action as an agent writes it; `read_action` reads it back.

    `number` is the number of the action's element. Returns None if the grammar cannot express the
    action. An answer becomes a `stop`.
    """
    verb = "stop" if action.is_final else _VERBS.get(action.kind)
    if verb is None or (verb in _ON_ELEMENTS and number is None):
        return None
    value = action.value or ""
    if verb == "type":
        return f"type [{number}] [{value.removesuffix(chr(10))}] [{int(value.endswith(chr(10)))}]"
    if verb in _ON_ELEMENTS:
        return f"{verb} [{number}]{f' [{value}]' if verb == 'upload' else ''}"
    return verb if verb in _BARE else f"{verb} [{value}]"


def describe(action: Action, observation_text: str | None) -> str:
    """Formats the action as in WebArena's logs: `click [7] where [7] is …`.

    The element is described by its line in the observation text. If the text does not contain the
    element, the result says so. Actions that WebArena does not have keep their own text.
    """
    if (
        action.kind in _ON_ELEMENTS
        and action.target is not None
        and (match := _NUMBER.match(action.target))
    ):
        number = match[1]
        element = element_line(number, observation_text or "")
        if element is None:
            return (
                f"attempted to {action.kind} [{number}], but no element on the page has that number"
            )
        typed = (action.value or "").rstrip("\n").replace("\n", " ")
        return (
            f"{action.kind} [{number}]{f' [{typed}]' if action.value is not None else ''} where "
            f"[{number}] is {element}"
        )
    verb = {kind: name for name, kind in _KINDS.items()}.get(action.kind)
    if verb is None or action.kind in _ON_ELEMENTS:
        return action.text or "none"
    if verb in _BARE:
        return verb
    return f"{verb} [{action.value or ''}]"


def element_line(number: str, observation_text: str) -> str | None:
    """Returns the line of an element without its number, `link 'Cart' focused: True`, or None."""
    match = re.search(rf"^\s*\[{re.escape(number)}\] *(.*)$", observation_text, re.MULTILINE)
    return match[1].rstrip() if match else None


def environment_notes(observation_text: str | None) -> list[str]:
    """Returns the lines in which the browser says what happened: `! click [17]: no such element`.

    They stand between the titles of the tabs and the page, which cannot imitate them.
    """
    lines = (observation_text or "").partition("\n\n")[0].split("\n")[1:]
    return [line for line in lines if line.startswith("! ")]


def split_answer(text: str | None) -> tuple[str | None, str | None]:
    """Splits a final text into the agent's own answer and the harness's reason to end the run.

    Texts such as `Early stop: …` come from the harness, not from the agent.
    """
    if not text:
        return None, None
    return (None, text) if text.startswith(_HARNESS) else (text, None)


def _short(text: str) -> str:
    # truncate after quoting, because `repr` can turn an unprintable character into ten
    quoted = repr(" ".join(text.split()))
    return quoted if len(quoted) <= 82 else f"{quoted[:80]}…{quoted[-1]}"


def join_sites(sites: tuple[str, ...]) -> str | None:
    """Returns the name of the only site, `multi` for several sites, or None for none."""
    return "multi" if len(sites) > 1 else next(iter(sites), None)
