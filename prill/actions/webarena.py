"""WebArena's actions (arXiv 2307.13854), as its agents write them and as its logs repeat them, read into records."""

from __future__ import annotations

import re

from prill.types import Action

_VERB = re.compile(r"([a-z_]+)\s*(?:\[(.*)\]\s*)?", re.DOTALL)
# Logs name the element: `click [7] where [7] is [7] link 'Cart'`; some releases leave out the third number.
_NAMED = re.compile(r"(.*?)\s+where \[([^\[\]]*)\] is (?:\[\2\] ?)?(.*)", re.DOTALL)
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
}
_ON_ELEMENTS = ("click", "hover", "type")
_HARNESS = ("Early stop:", "ERROR:")


def parse_action(text: str) -> Action:
    """The action, with `text` as it was written; kind `other` for what is no known verb in this grammar.

    `target` is the element's description where the text has one, else its number.
    """
    text = text.strip()
    said, element = text, None
    if named := _NAMED.fullmatch(text):
        said, element = named[1], named[3].strip() or None
    found = _VERB.fullmatch(said)
    if found is None or found[1] not in _KINDS:
        return Action("other", text)
    verb, inner = found[1], found[2]
    if verb not in _ON_ELEMENTS:
        return Action(_KINDS[verb], text, value=inner or None)
    if inner is None:
        return Action("other", text)
    number, _, typed = inner.partition("]")
    value = _PRESSES_ENTER.sub("", typed.lstrip().removeprefix("[")) if verb == "type" else None
    return Action(_KINDS[verb], text, target=element or number, value=value)


def split_answer(said: str | None) -> tuple[str | None, str | None]:
    """The agent's own answer, and why the harness ended the run: words like `Early stop: …` are not the agent's."""
    if not said:
        return None, None
    return (None, said) if said.startswith(_HARNESS) else (said, None)
