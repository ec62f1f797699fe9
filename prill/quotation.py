"""Untrusted text inside prompts: cleaned of what nobody can see, and set between marks that no page can know."""

from __future__ import annotations

import re
import unicodedata

from prill.prompts import NONCE

# Characters that no font draws, though Unicode calls them letters or marks: its Default_Ignorable_Code_Point.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def quoted(name: str, text: str) -> str:
    """The text between `[name code]` and `[/name code]`, without control and invisible characters.

    The model's client draws the code anew for every call, so no page can know it; an ending that the text brings along is
    spoilt all the same.
    """
    text = clean(text).strip().replace(f"[/{name}", f"[ /{name}")
    return f"[{name} {NONCE}]\n{text}\n[/{name} {NONCE}]"


def clean(text: str) -> str:
    """The text without control characters (line breaks and tabs stay) and invisible format characters."""
    if text.isascii() and text.isprintable():
        return text
    seen = _UNSEEN.sub("", text)
    return "".join(c for c in seen if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
