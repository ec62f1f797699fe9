"""How the code of arXiv 2404.06474 reads replies and words actions: for comparing with its figures, never for judging."""

from __future__ import annotations

import re
from typing import Literal


def reference_action(text: str) -> str | None:
    """How the original's code puts a recorded web action into words, kept for comparing with its prompts; prill's own way is
    `prill.evaluators.evidence.action_text`.

    A click loses its first six words, which costs an element without a repeated number its role; what cannot be taken apart
    is None. Source: spec sections 3 and 20 (D18, D24) of the reference implementation.
    """
    if text.startswith("click"):
        return f"click at [{' '.join(text.split()[6:])}]"
    if text.startswith("type"):
        typed, element = re.findall(r"\[([^\]]*)\]", text)[1:2], text.rpartition("]")[2].strip()
        return f"type [{typed[0]}] at [{element}]" if typed and element else None
    return text


def reference_verdict(reply: str, reading: Literal["offline", "reflexion"]) -> bool:
    """How the original's code reads a reply, kept for comparing with its figures; prill itself never reads replies this way.

    The first line that begins with "Status:" counts. `offline`, its evaluation scripts: success is exactly "success" or
    "Success". `reflexion`, its retries: success is any status that contains "success", so "unsuccessful" too. All else,
    a missing status included, is failure. Source: spec sections 7 and 20 (D3) of the reference implementation.
    """
    line = re.search(r"^Status:(.*)$", reply, re.MULTILINE)
    status = line[1].strip().replace('"', "") if line else ""
    return status in ("success", "Success") if reading == "offline" else "success" in status
