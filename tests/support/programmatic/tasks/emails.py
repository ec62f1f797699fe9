"""A program for mailboxes that handles all phrasings of the goal: people requested the same four
actions in hundreds of ways.
"""

from __future__ import annotations

import re

from tests.support.programmatic.screen import Move, Node, Page, click, enter

_DELETE = r"delet|trash|\brid of\b|remove|\bbin\b|away|out of my|don't want the|don't want \w+'s|\banymore\b"  # noqa: E501
_STAR = r"\b[Ss]tar\b|\b[Ii]mp?o?i?r?m?p?o?r|\b[Mm]ark|\b[Ff]lag"
# Capitalized words that are not names.
_NO_NAMES = {"Email", "Primary", "Siri", "Alexa", "Text", "Tuesday"}
_TO = (
    r"^(?P<name>{name}) (?:wants (?!his or her)|is waiting|needs|must)",
    r"\bto (?:contact |by email to )?(?P<name>{name})",
    r"\b(?:[Gg]ive|[Ss]end|[Ff]orward|[Ee]mail|[Ll]et|want|put|sure) (?P<name>{name})\b(?!')",
    r"'s email (?P<name>{name})",
    r"\bin (?P<name>{name})'s inbox",
)


def shown(page: Page) -> bool:
    """Returns whether the page is a mailbox: its list, a message, or a draft."""
    texts = {node.text.strip() for node in page.nodes}
    return (
        "Primary" in texts
        or {"Reply", "Forward"} <= texts
        or bool(page.named("send-reply") or page.named("send-forward"))
    )


def solve(goal: str, page: Page) -> list[Move]:
    """Returns the moves towards the goal from any of the three screens."""
    said = re.search(r'"+\s*([^"]+?)\s*"', goal)
    words = re.sub(r'"[^"]*"', "", goal)
    if said:
        return _reply(words, said[1], page)
    if re.search(_DELETE, words, re.IGNORECASE):
        return page.left([click(_icon(page, _sender(words, page), "trash"))])
    if re.search(_STAR, words):
        return page.left([click(_icon(page, _sender(words, page), "star"))])
    return _forward(words, page)


def _reply(words: str, text: str, page: Page) -> list[Move]:
    if page.named("send-reply"):
        return page.left(
            [enter(page.of_kind("textarea")[0], text), click(page.named("send-reply")[0])]
        )
    return _open(words, page, "Reply")


def _forward(words: str, page: Page) -> list[Move]:
    if page.named("send-forward"):
        field = page.field()
        return page.left([enter(field, _recipient(words)), click(page.named("send-forward")[0])])
    return _open(words, page, "Forward")


def _open(words: str, page: Page, button: str) -> list[Move]:
    """Returns a click on the button of an open message, or on the message in the list."""
    if page.saying("Reply") and page.saying("Forward"):
        return [click(page.saying(button)[0])]
    return [click(_sender(words, page))]


def _icon(page: Page, sender: Node, name: str) -> Node:
    """Returns the icon below the sender. If icons have no names, the bin is the first and the star
    the second.
    """
    below = page.after(sender)
    for node in below:
        if name in (node.text, *node.attributes.get("class", "").split()):
            return node
    icons = [node for node in below if node.tag.lower() == "span" and not node.text.strip()]
    if len(icons) < 2:
        raise LookupError(f"the message has no {name}")
    return icons[0 if name == "trash" else 1]


def _sender(words: str, page: Page) -> Node:
    """Returns the message whose sender the goal names. If the goal names two senders, it is the one
    who is not the recipient.
    """
    named = [
        node
        for node in page.nodes
        if re.fullmatch(r"[A-Z]\w+", node.text.strip()) and _mentions(words, node.text.strip())
    ]
    if not named:
        raise LookupError("none of the messages is by anybody whom the goal names")
    if len({node.text for node in named}) == 1:
        return named[0]
    recipient = _recipient(words)
    return next((node for node in named if node.text.strip() != recipient), named[0])


def _mentions(words: str, name: str) -> bool:
    if name in _NO_NAMES or not re.fullmatch(r"[A-Z]\w+", name):
        return False
    return re.search(rf"{name}(?:'?s)?\b", words) is not None


def _recipient(words: str) -> str:
    """Returns the recipient."""
    name = r"[A-Z][a-z]+"
    for pattern in _TO:
        for found in re.finditer(pattern.format(name=name), words):
            if found["name"] not in _NO_NAMES:
                return found["name"]
    raise LookupError("the goal does not tell who is to have the message")
