"""Parsing and action wording of arXiv 2404.06474's code, only for comparison with its figures."""

from __future__ import annotations

import re
from typing import Literal


def reference_action(text: str) -> str | None:
    """Formats a recorded web action as the reference implementation does, for comparison with its
    prompts.

    prill's own form is `prill.evaluators.evidence.action_text`. A click loses its first six words,
    which costs an element without a repeated number its role. Source: sections 3 and 20 (D18, D24)
    of the reference implementation's specification.

    Args:
        text: The recorded action.

    Returns:
        The text; None where the action cannot be taken apart.
    """
    if text.startswith("click"):
        return f"click at [{' '.join(text.split()[6:])}]"
    if text.startswith("type"):
        typed, element = re.findall(r"\[([^\]]*)\]", text)[1:2], text.rpartition("]")[2].strip()
        return f"type [{typed[0]}] at [{element}]" if typed and element else None
    return text


def reference_verdict(reply: str, reading: Literal["offline", "reflexion"]) -> bool:
    """Reads a reply as the reference implementation does, for comparison with its figures; prill
    itself never reads replies this way.

    The first line that begins with "Status:" counts; a missing status is a failure. Source:
    sections 7 and 20 (D3) of the reference implementation's specification.

    Args:
        reply: The model's reply.
        reading: `"offline"`, its evaluation scripts: a success is exactly "success" or "Success".
            `"reflexion"`, its retries: a success is any status that contains "success", so
            "unsuccessful" too.

    Returns:
        Whether the reply is read as a success.
    """
    line = re.search(r"^Status:(.*)$", reply, re.MULTILINE)
    status = line[1].strip().replace('"', "") if line else ""
    return status in ("success", "Success") if reading == "offline" else "success" in status
