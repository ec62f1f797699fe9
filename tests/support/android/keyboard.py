"""Input methods: the shell commands ime and settings, and the ADB keyboard, which types the text of
broadcasts.
"""

from __future__ import annotations

import base64
import binascii

from tests.support.android.phone import LATIN_IME, Phone
from tests.support.android.touch import NOTHING, Answer, failed, output, press


def adb_keyboard(phone: Phone, action: str, options: dict[str, str]) -> None:
    """Handles a broadcast for the ADB keyboard (github.com/senzhk/ADBKeyBoard)."""
    screen = phone.screen
    if action == "ADB_INPUT_TEXT":
        screen.type(options.get("--es msg", ""))
    elif action == "ADB_INPUT_B64":
        try:
            screen.type(base64.b64decode(options.get("--es msg", "")).decode())
        except (binascii.Error, UnicodeDecodeError):
            return
    elif action == "ADB_CLEAR_TEXT" and screen.focus:
        screen.texts[screen.focus] = ""
    elif action == "ADB_INPUT_CODE" and options.get("--ei code", "").isdecimal():
        press(phone, int(options["--ei code"]))
    elif action == "ADB_EDITOR_CODE":
        screen.enter()


def settings(phone: Phone, words: list[str]) -> Answer:
    """Handles the `settings` command. Only the input method has a value."""
    if words[1:3] == ["secure", "default_input_method"]:
        if words[0] == "put" and words[3:] and words[3] in phone.installed_imes:
            phone.ime = words[3]
            phone.changed()
        return output(f"{phone.ime}\n") if words[0] == "get" else NOTHING
    return output("null\n") if words[:1] == ["get"] else NOTHING


def ime(phone: Phone, words: list[str]) -> Answer:
    """Handles the `ime` command."""
    kind, *rest = words or [""]
    if kind == "list":
        names = phone.installed_imes if "-a" in rest else phone.imes
        return output(
            "".join(f"{name}\n" if "-s" in rest else f"{name}:\n  mId={name}\n" for name in names)
        )
    if kind == "reset":
        phone.ime, phone.imes = LATIN_IME, [LATIN_IME]
        phone.changed()
        return output("Reset current and enabled IMEs for user #0\n")
    name = rest[-1] if rest else ""
    available = name in (phone.imes if kind == "set" else phone.installed_imes)
    if kind not in ("enable", "disable", "set") or not available:
        outcome = {"set": "selected", "enable": "enabled", "disable": "disabled"}.get(kind, "used")
        return failed(f"Unknown input method {name} cannot be {outcome} for user #0\n")
    if kind == "set":
        phone.ime = name
    elif kind == "enable" and name not in phone.imes:
        phone.imes.append(name)
    elif kind == "disable" and name in phone.imes:
        phone.imes.remove(name)
        phone.ime = LATIN_IME if phone.ime == name else phone.ime
    phone.changed()
    outcome = {"set": "selected", "enable": "now enabled", "disable": "now disabled"}[kind]
    return output(f"Input method {name}{':' if kind != 'set' else ''} {outcome} for user #0\n")
