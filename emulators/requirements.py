"""Platform requirements, as `prill devices` lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """A requirement of a platform: `found` describes the installed tool (None: missing), and `get`
    says how to install it.

    `lacking` is the status shown for a missing tool.
    """

    name: str
    found: str | None
    get: str
    lacking: str = "missing"
