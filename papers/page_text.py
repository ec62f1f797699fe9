"""What a policy reads of a page, where the environment can show it in several ways."""

from __future__ import annotations

from typing import Literal

# A policy's attribute `page_text`: the commands set the environment's option `text` by it, unless
# they are told otherwise.
PageText = Literal["lines", "html"]


def is_html(text: str) -> bool:
    """Whether a state's text is a page in HTML; lines never begin with a tag."""
    return text.lstrip().startswith("<")
