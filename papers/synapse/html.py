"""Parses a page's HTML as an lxml tree."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from prill.errors import MissingExtraError
from prill.papers.synapse.jail import read_page

if TYPE_CHECKING:
    from lxml.etree import _Element as Element


class Page:
    """A page that was shown to an agent.

    Args:
        html: Its HTML, or the content of its body. Invalid HTML is accepted.
    """

    def __init__(self, html: str) -> None:
        # Environments write the content of <body>; agents write XPaths from the root.
        whole = "<html" in html[:500].lower() or "<body" in html[:500].lower()
        self.html = html if whole else f"<html><body>{html}"

    @cached_property
    def elements(self) -> list[Element]:
        """Returns all elements, in document order."""
        try:
            from lxml import etree
        except ImportError:
            raise MissingExtraError("lxml", "mind2web") from None
        return list(read_page(self.html, etree).iter())

    def own(self, xpath: str) -> list[Element]:
        """Returns the elements that one of our own XPaths selects. Model-written XPaths use
        `prill.papers.synapse.sandbox`.
        """
        from lxml import etree

        try:
            return list(self.elements[0].xpath(xpath))
        except (etree.XPathError, ValueError):  # a name or a text that XPath cannot express
            return []


def get_text(element: Element) -> str:
    """Returns all text inside an element."""
    return "".join(element.itertext())
