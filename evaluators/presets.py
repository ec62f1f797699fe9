"""Two ways of judging outcomes by one call: `prill`, our defaults, and `paper`, as arXiv 2404.06474 did it.

The paper's code shows one state, the last. On the web its text judge sees the agent's answer and its vision judge does not
(although the prompt printed in the paper has a place for it); on phones it is the other way round. It asks for two lines,
"Thoughts:" and "Status:". The wording of our prompts is our own in both presets. One deliberate difference: a reply without
a verdict, and a failed call, count as failures there and are unscored here (`reference_verdict` has the original's reading).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from prill.errors import UsageError
from prill.evaluators.outcome import STATUS
from prill.parse import ReplyFormat
from prill.types import Trajectory

PresetName = Literal["prill", "paper"]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a preset decides. Raise `version` when one of these changes."""

    name: PresetName
    version: str
    form: ReplyFormat
    answer_on_the_web: bool
    answer_on_devices: bool

    def shows_answer(self, trajectory: Trajectory, chosen: bool | None) -> bool:
        """Whether the judge is shown the agent's answer; `chosen` is the user's own word, if any."""
        if chosen is not None:
            return chosen
        return self.answer_on_the_web if trajectory.task.platform == "web" else self.answer_on_devices


_TAGGED = replace(STATUS, tagged=True)
_PRILL = Preset("prill", "2", STATUS, answer_on_the_web=True, answer_on_devices=True)
_PRESETS = {
    ("prill", "text"): _PRILL,
    ("prill", "vision"): _PRILL,
    ("paper", "text"): Preset("paper", "1", _TAGGED, answer_on_the_web=True, answer_on_devices=False),
    ("paper", "vision"): Preset("paper", "1", _TAGGED, answer_on_the_web=False, answer_on_devices=True),
}


def preset(name: str, kind: Literal["text", "vision"], frames: int) -> Preset:
    """The preset of that name for a judge that reads captions (`text`) or looks (`vision`). Raises UsageError."""
    if name not in ("prill", "paper"):
        raise UsageError(f"unknown preset {name!r}; there are: prill, paper")
    if name == "paper" and frames != 1:
        raise UsageError("the paper's protocol shows one state; leave --frames away, or use --preset prill")
    return _PRESETS[name, kind]


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
    found = re.search(r"^Status:(.*)$", reply, re.MULTILINE)
    status = found[1].strip().replace('"', "") if found else ""
    return status in ("success", "Success") if reading == "offline" else "success" in status
