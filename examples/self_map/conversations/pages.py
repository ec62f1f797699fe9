"""Pages of the generated sites in Mind2Web's cleaned form. Each node has a `backend_node_id`, and
texts are elements `text`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from sites import Site

# the role of a candidate (section, name, field, menu, submit, extra), and its words
Key = tuple[str, str]


@dataclass(slots=True)
class GeneratedPage:
    """A page, its candidates in document order, and the role of each."""

    html: str
    candidates: list[dict[str, Any]]
    ids: dict[Key, str]


@dataclass(slots=True)
class _Writer:
    chance: Random
    next_id: int
    parts: list[str] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    ids: dict[Key, str] = field(default_factory=dict)
    nodes: int = 0

    def open(
        self, tag: str, attributes: dict[str, str] | None = None, key: Key | None = None
    ) -> None:
        """Opens an element. An element with a key is a candidate."""
        self.next_id += self.chance.randrange(1, 4)  # ids have gaps, as in real pages
        self.nodes += 1
        own = {"backend_node_id": str(self.next_id)} | (attributes or {})
        self.parts.append(
            f"<{tag} {' '.join(f'{name}={quoteattr(value)}' for name, value in own.items())}>"
        )
        if key:
            box = ",".join(str(self.chance.randrange(1, 900)) for _ in range(4))
            shown = json.dumps(
                {"backend_node_id": own["backend_node_id"], "bounding_box_rect": box}
                | (attributes or {})
            )
            self.candidates.append(
                {"tag": tag, "attributes": shown, "backend_node_id": own["backend_node_id"]}
            )
            self.ids[key] = own["backend_node_id"]

    def close(self, tag: str) -> None:
        self.parts.append(f"</{tag}>")

    def text(self, words: str) -> None:
        self.open("text")
        self.parts.append(escape(words))
        self.close("text")

    def leaf(
        self, tag: str, words: str, attributes: dict[str, str] | None = None, key: Key | None = None
    ) -> None:
        self.open(tag, attributes, key)
        if words:
            self.text(words)
        self.close(tag)

    def links(self, kind: str, words: list[str], attributes: dict[str, str] | None = None) -> None:
        self.open("ul", attributes)
        for word in words:
            self.open("li")
            self.leaf("a", word, key=(kind, word))
            self.close("li")
        self.close("ul")


def page(
    site: Site,
    listed: list[tuple[str, list[str]]],
    offered: dict[str, list[str]],
    chance: Random,
    *,
    section: str,
    nodes: int = 0,
) -> GeneratedPage:
    """Returns a page of a site: its menu, the names listed under each thing, a form whose menus
    offer names, and other links.

    With `nodes`, text without candidates fills the page up to about that number of nodes.
    """
    writer = _Writer(chance, chance.randrange(2, 4000))
    writer.open("html")
    writer.open("body")
    writer.open("nav")
    writer.links("section", list(site.sections))
    writer.close("nav")
    writer.open("main")
    writer.leaf("h1", section)
    blocks: list[tuple[str, Any]] = [("list", one) for one in listed] + [("form", None)]
    chance.shuffle(blocks)
    for what, block in blocks:
        if what == "list":
            thing, found = block
            writer.open("section", {"title": thing})
            writer.links("name", found)
            writer.close("section")
        else:
            _form(writer, site, offered)
    writer.close("main")
    while writer.nodes < nodes:
        _filling(writer, site)
    writer.open("footer")
    writer.links("extra", chance.sample(site.extras, chance.randrange(6, len(site.extras) + 1)))
    writer.close("footer")
    writer.close("body")
    writer.close("html")
    return GeneratedPage("".join(writer.parts), writer.candidates, writer.ids)


def _form(writer: _Writer, site: Site, offered: dict[str, list[str]]) -> None:
    writer.open("form")
    for label in site.fields:
        writer.open("div")
        writer.leaf("input", "", {"type": "text", "placeholder": label}, ("field", label))
        writer.close("div")
    for label, names in offered.items():
        writer.open("div")
        writer.open("select", {"title": label}, ("menu", label))
        for name in names:
            writer.leaf("option", name)
        writer.close("select")
        writer.close("div")
    writer.open("div")
    writer.leaf("button", site.submit, {"type": "submit"}, ("submit", site.submit))
    writer.close("div")
    writer.close("form")


def _filling(writer: _Writer, site: Site) -> None:
    writer.open("article")
    writer.leaf("h2", writer.chance.choice(site.extras))
    for _ in range(writer.chance.randrange(2, 6)):
        writer.open("div", {"class": "teaser"})
        writer.leaf(
            "p",
            " ".join(
                writer.chance.choices(
                    (*site.sections, *site.extras), k=writer.chance.randrange(4, 14)
                )
            ),
        )
        writer.close("div")
    writer.close("article")
