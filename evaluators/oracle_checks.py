"""What one check of WebArena's oracle found, and how several of them make a label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prill.datasets.webarena_tasks import SITES

Mode = Literal["paper", "fixed"]
_UNSET = re.compile(f"__({'|'.join(SITES)})__")


class Undecidable(Exception):
    """A check could not be carried out; the message says why. It never counts as failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `passed` is None when it could not be decided. `text` says what was looked for, and what was found instead."""

    passed: bool | None
    text: str


def product(checks: Sequence[Check]) -> bool | None:
    """True when all passed, False when one failed, whatever the others would have said; else None: there is no decision."""
    results = {check.passed for check in checks}
    if False in results:
        return False
    return None if None in results or not checks else True


def note(checks: Sequence[Check]) -> str | None:
    """What failed and what is undecided, in words; None when all passed."""
    words = {False: "failed", None: "undecided"}
    return "; ".join(f"{words[check.passed]}: {check.text}" for check in checks if check.passed is not True) or None


def require_sites(*texts: str) -> None:
    """Raises Undecidable when the texts still name a site whose address nobody gave, such as `__REDDIT__`."""
    if found := _UNSET.search(" ".join(texts)):
        raise Undecidable(f"the environment variable {found[1]} is not set")
