"""A page's HTML as a tree of lxml."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from prill.errors import MissingExtraError
from prill.papers.synapse.jail import read_page

if TYPE_CHECKING:
    from lxml.etree import _Element as Element


class Page:
    """A page that an agent was shown.

    Args:
        html: Its HTML, or what stands in its body. No HTML is too broken to be read.
    """

    def __init__(self, html: str) -> None:
        # Environments write what stands in <body>; agents write XPaths from the top.
        whole = "<html" in html[:500].lower() or "<body" in html[:500].lower()
        self.html = html if whole else f"<html><body>{html}"

    @cached_property
    def elements(self) -> list[Element]:
        """All elements, in the page's order."""
        try:
            from lxml import etree
        except ImportError:
            raise MissingExtraError("lxml", "mind2web") from None
        return list(read_page(self.html, etree).iter())

    def own(self, xpath: str) -> list[Element]:
        """The elements that an XPath of ours selects; one that a model wrote goes through
        `prill.papers.synapse.sandbox`.
        """
        from lxml import etree

        try:
            return list(self.elements[0].xpath(xpath))
        except (etree.XPathError, ValueError):  # a name or a text that XPath cannot write
            return []


def get_text(element: Element) -> str:
    """All text inside."""
    return "".join(element.itertext())
