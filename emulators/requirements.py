"""Platform requirements, as `prill devices` lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a platform needs: `found` says which there is, None that it is missing; `get`
    how to get it.

    `lacking` is what is said of it then.
    """

    name: str
    found: str | None
    get: str
    lacking: str = "missing"
