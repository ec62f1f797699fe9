"""A recorded page: what is kept of it around some candidates, in text, and the choices that it offers.

The rules are those of MindAct (Mind2Web, arXiv 2306.06070) as Self-MAP (ACL 2024) uses them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Brackets = Literal["round", "angle"]
Ids = Literal["short", "original"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate as it is offered: its node, and the first 10 words of its text."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """A page cut around candidates: its text, and the candidates in the order of the document. With short ids, choice k is
    printed as `id=k`."""

    text: str
    choices: tuple[Choice, ...]


class Page:
    """A page of `cleaned_html`, parsed once. Raises InputError for what is no page."""

    def __init__(self, html: str) -> None:
        raise NotImplementedError

    def __contains__(self, id: str) -> bool:
        """Whether a node has this `backend_node_id`."""
        raise NotImplementedError

    def view(self, candidates: Collection[str], *, brackets: Brackets = "round", ids: Ids = "short") -> View:
        """The page around these candidates; ids that it does not have are passed over."""
        raise NotImplementedError

    def candidate_text(self, id: str) -> str:
        """What a ranker reads of a candidate: two lines, its ancestors' text and its own."""
        raise NotImplementedError
