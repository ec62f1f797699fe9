"""What language agents write to act on a phone: WebArena's form, `verb [argument]`, with the verbs of a touch screen."""

from __future__ import annotations

import re

from prill.actions.webarena import UnreadableAction, read_action
from prill.parse import excerpt
from prill.types import Action

_SWIPE = re.compile(r"swipe\s*\[?\s*(up|down|left|right)\s*\]?")
_BUTTONS = {
    "back": Action("back", "back"),
    "go_back": Action("back", "back"),
    "home": Action("home", "home"),
    "go_home": Action("home", "home"),
    "enter": Action("press", "enter", value="Enter"),
    "press [enter]": Action("press", "enter", value="Enter"),
    "wait": Action("wait", "wait"),
}
_EXPECTED = "tap [id], type [id] [text], swipe [up|down|left|right], back, home, enter, wait, stop [answer]"


def read_phone_action(text: str) -> Action:
    """The action that an agent wrote; `target` is `[number]`.

    Unlike in a browser, `type` presses Enter only for `[1]` at its end. `swipe` says where the finger goes: up shows what is
    further down. Raises UnreadableAction for everything else.
    """
    text = text.strip()
    if (button := _BUTTONS.get(text.lower())) is not None:
        return button
    if swipe := _SWIPE.fullmatch(text.lower()):
        return Action("swipe", f"swipe [{swipe[1]}]", value=swipe[1])
    verb = re.match(r"tap|click|type|stop", text)
    if verb is None:
        raise UnreadableAction(f"{excerpt(text)} is no action; the actions are {_EXPECTED}")
    if verb[0] == "tap":
        return read_action("click" + text.removeprefix("tap"))
    if verb[0] == "type" and not text.endswith(("[0]", "[1]")):
        text += " [0]"
    return read_action(text)
