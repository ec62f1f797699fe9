"""Cuts a recorded page around candidates, formats it as text, and offers the candidates as choices.

The rules are those of MindAct (Mind2Web, arXiv 2306.06070) as Self-MAP (ACL 2024) uses them. This
module defines the cases that they leave open:

* Texts of `cleaned_html` are elements named `text`. Text directly inside an element counts as such
  an element at its position.
* Parts of a text are separated by one space, regardless of the XML's layout. An element without
  children is `<a … />`; one whose children were all removed is `<a …> </a>`.
* If two nodes have the same id, the first one counts. A candidate that is a `text` is kept but is
  not a choice, because texts have no id.
* A page that declares XML entities is refused, to prevent entity expansion attacks.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import InputError, MissingExtraError
from prill.papers.replies import read_toml

if TYPE_CHECKING:
    from lxml import etree

Brackets = Literal["round", "angle"]
Ids = Literal["short", "original", "none"]

_ID, _TEXT = "backend_node_id", "text"
_MAX_PAGES = 32  # parsed pages that are cached: those of a conversation
_DEPTH, _DESCENDANTS, _SIBLINGS = 6, 50, 3  # kept around a candidate: MindAct's settings
# limits for an attribute value, and for all of an element's attributes or a text
_LONG_WORD, _VALUE_WORDS, _WORDS = 15, 5, 20
_CHOICE_WORDS, _ANCESTOR_WORDS, _TARGET_WORDS, _QUERY_ACTIONS = 10, 50, 100, 3
# in MindAct's order
_ATTRIBUTES = read_toml("prill.papers.mind2web", "words.toml")["attributes"]
_EMPTY_VALUES = frozenset({"hidden", "none", "presentation", "null", "undefined"})
_ENTITIES = read_toml("prill.papers.mind2web", "words.toml")["entities"]
_OPEN = "\x00"  # XML cannot contain it, so no page does; the page's own slashes are unchanged
_ENTITY = re.compile("&(" + "|".join(_ENTITIES) + ");")


@dataclass(frozen=True, slots=True)
class CandidateChoice:
    """A candidate as offered to the model: its node, and the first 10 words of its text."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CandidateView:
    """A page cut around candidates, in document order. Choice k is printed as `id=k`."""

    text: str
    choices: tuple[CandidateChoice, ...]


class RecordedPage:
    """A parsed page of `cleaned_html`. Raises InputError for other text."""

    def __init__(self, html: str) -> None:
        # Nodes are numbered in document order, so that a subtree is a range and no function is
        # recursive. An item is an lxml element, or the text of a text directly inside an element.
        self._elements: list[Any] = []
        self._parents: list[int] = []
        self._is_text: list[bool] = []
        # the children that are elements, and those that are texts, where there are some
        self._inner: dict[int, list[int]] = {}
        self._texts: dict[int, list[int]] = {}
        self._nodes: dict[str, int] = {}
        self._summaries: dict[int, str] = {}
        self._read(_parsed(html))

    def __contains__(self, id: str) -> bool:
        """Returns whether a node has this `backend_node_id`."""
        return id in self._nodes

    def view(
        self, candidates: Collection[str], *, brackets: Brackets = "round", ids: Ids = "short"
    ) -> CandidateView:
        """Cuts the page around candidates. Ids that it does not have are ignored.

        `short` ids number the candidates from 0, `original` keeps their node ids.
        """
        nodes = {node for id in candidates if (node := self._nodes.get(id)) is not None}
        cut = self._pruned(nodes)
        offered = [node for node in sorted(nodes) if not self._is_text[node]]
        shown = () if ids == "none" else offered
        names = {
            node: str(k) if ids == "short" else self._elements[node].get(_ID)
            for k, node in enumerate(shown)
        }
        text = self._text(0, cut, names, brackets)
        choices = (
            CandidateChoice(
                self._elements[node].get(_ID),
                _first(self._text(node, cut, names, brackets), _CHOICE_WORDS),
            )
            for node in offered
        )
        return CandidateView(text, tuple(choices))

    def candidate_text(self, id: str) -> str:
        """Returns the text of a candidate that a ranker reads. Raises KeyError for an unknown id.

        It has two lines: the ancestors' text (the last 50 words), and its own (the first 100).
        """
        node = self._nodes[id]
        cut = self._pruned({node})
        around = "" if node == 0 else self._text(0, cut, {}, "slashes", without=node)
        own = self._text(node, cut, {node: "0"}, "round")
        return (
            f"ancestors: {' '.join(around.split()[-_ANCESTOR_WORDS:])}\ntarget: "
            f"{_first(own, _TARGET_WORDS)}"
        )

    def _read(self, root: etree._Element) -> None:
        # the stack of elements or texts to visit, each with its parent
        known: list[tuple[Any, int]] = [(root, -1)]
        while known:
            element, parent = known.pop()
            node = len(self._parents)
            is_string = isinstance(element, str)
            text = is_string or element.tag == _TEXT
            self._elements.append(element)
            self._parents.append(parent)
            self._is_text.append(text)
            (self._texts if text else self._inner).setdefault(parent, []).append(node)
            if is_string:
                continue
            if (id := element.get(_ID)) is not None:
                self._nodes.setdefault(id, node)
            if text:
                continue
            for child in element.iterchildren(reversed=True):
                if (tail := child.tail) and not tail.isspace():
                    known.append((tail, node))
                if isinstance(child.tag, str):  # skips references to entities
                    known.append((child, node))
            if (before := element.text) and not before.isspace():
                known.append((before, node))

    def _children(self, node: int) -> list[int]:
        return sorted([*self._inner.get(node, ()), *self._texts.get(node, ())])

    def _kept(self, node: int) -> Iterator[int]:
        """Yields the nodes to keep for a candidate. Parents keep their texts."""
        yield node
        above = self._parents[node]
        while above >= 0:
            yield above
            above = self._parents[above]
        below, left = [(child, 1) for child in reversed(self._children(node))], _DESCENDANTS
        while below and left:
            child, depth = below.pop()
            yield child
            left -= 1
            if depth < _DEPTH:
                below.extend(
                    (grandchild, depth + 1) for grandchild in reversed(self._children(child))
                )
        parent = self._parents[node]
        if parent >= 0 and not self._is_text[node]:
            siblings = self._inner[parent]  # including the node itself
            index = bisect_left(siblings, node)
            yield from siblings[max(0, index - _SIBLINGS) : index + _SIBLINGS + 1]

    def _pruned(self, candidates: Collection[int]) -> dict[int, list[int]]:
        """Returns the kept children of each kept element. An empty one becomes its only child."""
        kept = {
            node
            for candidate in candidates
            for node in self._kept(candidate)
            if not self._is_text[node]
        } | {0}
        cut: dict[int, list[int]] = {}
        # the kept children, or the elements that replace them
        left: dict[int, list[int]] = {node: [] for node in kept}
        for node in sorted(kept, reverse=True):
            children = sorted([*left[node], *self._texts.get(node, ())])
            cut[node] = children
            named = not {*self._elements[node].attrib} <= {_ID}
            bare = node != 0 and node not in candidates and not named and len(children) <= 1
            bare = bare and not any(self._is_text[child] for child in children)
            stays = children if bare else [node]
            if node:
                left[self._parents[node]].extend(stays)
        return cut

    def _summary(self, node: int) -> str:
        if (summary := self._summaries.get(node)) is None:
            summary = self._summaries[node] = attribute_summary(dict(self._elements[node].attrib))
        return summary

    def _text(
        self,
        top: int,
        cut: dict[int, list[int]],
        names: dict[int, str],
        brackets: Brackets | Literal["slashes"],
        without: int | None = None,
    ) -> str:
        """Formats a subtree with these names as ids; `slashes` are MindAct's for ancestors."""
        parts: list[str] = []
        todo: list[int | str] = [top]
        while todo:
            node = todo.pop()
            if isinstance(node, str):
                parts.append(node)
                continue
            if node == without:
                continue
            if self._is_text[node]:
                parts.append(_first(_words(self._elements[node]), _WORDS))
                continue
            tag = self._elements[node].tag
            number = f"id={names[node]}" if node in names else ""
            opening = " ".join(filter(None, (tag, number, self._summary(node))))
            empty = node not in self._inner and node not in self._texts
            if brackets == "slashes":
                parts.append(f"{_OPEN}{opening}")
            elif empty:
                blank = "" if opening == tag else " "
                parts.append(
                    f"<{opening}{blank}/>" if brackets == "angle" else f"({opening}{blank})"
                )
            else:
                parts.append(f"<{opening}>" if brackets == "angle" else f"({opening}")
                todo.append(f"</{tag}>" if brackets == "angle" else ")")
            todo.extend(reversed(cut[node]))
        text = " ".join(part for part in parts if part)
        if brackets == "slashes":
            text = text.replace(f" {_OPEN}", _OPEN).replace(_OPEN, "/")
        return " ".join(_decoded(text).split())


@lru_cache(_MAX_PAGES)
def read_page(html: str) -> RecordedPage:
    """Parses a page and caches it with the most recent ones. Raises InputError."""
    return RecordedPage(html)


def ranker_query(goal: str, past: Sequence[str]) -> str:
    """Returns the ranker's query: two lines, the goal and the last 3 actions taken.

    The labels are those of the candidate generator in Mind2Web's repository, so that its published
    rankers get the input they were trained on. The second line is empty if no action was taken.
    """
    actions = "; ".join(past[-_QUERY_ACTIONS:])
    return f"task is: {' '.join(goal.split())}\nPrevious actions: {actions}"


def attribute_summary(attributes: Any) -> str:
    """Summarizes an element's attributes: at most 5 short words of each, 20 in all."""
    values: list[str] = []
    for name in _ATTRIBUTES:
        value = attributes.get(name, "").lower()
        if value in _EMPTY_VALUES or value.startswith("http"):
            continue
        words = [word for word in value.split() if len(word) < _LONG_WORD]
        shown = " ".join(words[:_VALUE_WORDS])
        if shown and shown not in values:
            values.append(shown)
    return _first(" ".join(values), _WORDS).replace('"', " ")


def _parsed(html: str) -> etree._Element:
    try:
        from lxml import etree
    except ImportError:
        raise MissingExtraError("lxml", "papers") from None
    if "<!ENTITY" in html:
        raise InputError("the page declares XML entities, which Mind2Web pages do not")
    # huge_tree: libxml2 otherwise stops at 256 levels; with it, it fails with an error at some
    # thousand
    options = {
        "resolve_entities": False,
        "no_network": True,
        "remove_comments": True,
        "remove_pis": True,
        "huge_tree": True,
    }
    try:
        return etree.fromstring(
            html.encode("utf-8", "replace"), etree.XMLParser(encoding="utf-8", **options)
        )
    except etree.XMLSyntaxError as error:
        raise InputError(f"the page is not valid XML: {' '.join(str(error.msg).split())}") from None


def _words(element: etree._Element | str) -> str:
    text = element if isinstance(element, str) else " ".join(element.itertext(tag=None))
    return text.replace('"', " ")


def _first(text: str, count: int) -> str:
    return " ".join(text.split()[:count])


def _decoded(text: str) -> str:
    return _ENTITY.sub(lambda found: _ENTITIES[found[1]], text) if "&" in text else text
