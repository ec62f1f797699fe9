"""Parses replies and formats actions as arXiv 2404.06474's code does, only to compare figures."""

from __future__ import annotations

import re
from typing import Literal


def reference_action(text: str) -> str | None:
    """Formats a recorded web action as the reference implementation does, for comparison with its
    prompts.

    prill's own format is `prill.evaluators.evidence.action_text`. The first six words of a click
    are removed, which removes the role of an element without a repeated number. Source: sections 3
    and 20 (D18, D24) of the reference implementation's specification.

    Args:
        text: The recorded action.

    Returns:
        The text; None if the action cannot be parsed.
    """
    if text.startswith("click"):
        return f"click at [{' '.join(text.split()[6:])}]"
    if text.startswith("type"):
        typed, element = re.findall(r"\[([^\]]*)\]", text)[1:2], text.rpartition("]")[2].strip()
        return f"type [{typed[0]}] at [{element}]" if typed and element else None
    return text


def reference_verdict(reply: str, reading: Literal["offline", "reflexion"]) -> bool:
    """Parses a reply as the reference implementation does, for comparison with its figures.

    prill itself never parses replies this way.

    The first line that starts with "Status:" counts; a missing status is a failure. Source:
    sections 7 and 20 (D3) of the reference implementation's specification.

    Args:
        reply: The model's reply.
        reading: The rule. `"offline"` is that of its evaluation scripts: only "success" or
            "Success" is a success. `"reflexion"` is that of its retries: any status that contains
            "success" is a success, including "unsuccessful".

    Returns:
        Whether the reply counts as a success.
    """
    line = re.search(r"^Status:(.*)$", reply, re.MULTILINE)
    status = line[1].strip().replace('"', "") if line else ""
    return status in ("success", "Success") if reading == "offline" else "success" in status
