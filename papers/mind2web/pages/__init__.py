"""Recorded pages as models read them: cut around candidates, as text, with choices (Mind2Web and
its successors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.mind2web.pages.state import PageState, read_state

__all__ = ["PageState", "read_state"]
__getattr__, __dir__ = lazily(__name__)
