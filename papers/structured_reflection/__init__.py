"""The agent of arXiv 2310.08740: it plans a whole screen at a time, and corrects the earliest wrong
step in the next attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.structured_reflection.memory import Note, build_memory, write_note

__all__ = ["Note", "build_memory", "write_note"]
__getattr__, __dir__ = lazily(__name__)
