"""A model that follows its exemplars: it repeats the most similar one, with the words of the
current task.

It has no knowledge of web pages. It solves only what its exemplars solve, and a wrong exemplar
misleads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from html import unescape
from operator import eq

from prill.models.ledger import count_usage
from prill.protocols import Form, Message, Reply
from prill.types import Usage

_PAGE = re.compile(r"\[page [^\]]*\]\n(.*?)\n\[/page [^\]]*\]", re.DOTALL)
_QUERY = re.compile(r'<div id="query"[^>]*>(.*?)</div>', re.DOTALL)
_BLOCK = re.compile(r"```(?:python)?\n(.*?)\n?```", re.DOTALL)
_TASK = re.compile(r"^Task: (.*?)\n(?:Trajectory:|State:|Code:)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^Task: (.*?)\nCode:\n```(?:python)?\n(.*?)\n```", re.DOTALL | re.MULTILINE)
_PAIR = re.compile(
    r"State:\n\[page [^\]]*\]\n(.*?)\n\[/page [^\]]*\]\nObservation:\n(.*?)\n\n?(?=State:)",
    re.DOTALL,
)
_QUOTED = re.compile(r'"([^"]*)"')


class ExemplarFollower:
    """A language model for `prill.papers.synapse`. `seen` holds the messages of every call."""

    def __init__(self) -> None:
        self.seen: list[tuple[Message, ...]] = []

    @property
    def name(self) -> str:
        """The name of the model in recordings."""
        return "exemplar-follower"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Returns the calls of the most similar exemplar, or code or an abstraction if
        requested.
        """
        self.seen.append(tuple(messages))
        texts = [
            "".join(part for part in message.parts if isinstance(part, str)) for message in messages
        ]
        if messages[0].role == "system":
            text = f"```\n{_calls(list(zip((message.role for message in messages), texts, strict=True)))}\n```"  # noqa: E501
        else:
            text = _code(texts[-1]) or _words(texts[-1])
        usage = Usage(
            calls=1, prompt_tokens=sum(map(len, texts)) // 4, completion_tokens=len(text) // 4
        )
        count_usage(usage)
        return Reply(text, usage, {})


def _calls(turns: list[tuple[str, str]]) -> str:
    """Returns the calls of the exemplar with the most similar task, at the same turn."""
    episodes, task = list[list[tuple[str, str]]](), ""
    several = any(text.endswith("Trajectory:") for role, text in turns if role == "user")
    for at, (role, text) in enumerate(turns):
        if match := _TASK.match(text):
            task = match[1]
            episodes.append([])
        elif role == "user" and (page := _PAGE.search(text)):
            if not several:
                episodes.append([])
            done = turns[at + 1][1] if at + 1 < len(turns) else ""
            episodes[-1].append((f"{task} {seen_of(page[1])}".strip(), done))
    *shown, now = episodes
    goal = now[-1][0]
    found = [
        (_alike(one[len(now) - 1][0], goal), i, one)
        for i, one in enumerate(shown)
        if len(one) >= len(now)
    ]
    if not found:
        return ""
    before, reply = max(found)[2][len(now) - 1]
    block = _BLOCK.search(reply)
    return adapted(block[1] if block else "", before, goal)


def seen_of(page: str) -> str:
    """Returns the text that this model compares: the instruction on an HTML page, else the
    abstracted page.
    """
    query = _QUERY.search(page)
    return (
        " ".join(unescape(re.sub(r"<[^>]+>", "", query[1] if query else page)).split())
        if query or "<" not in page
        else ""
    )


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, _tokens(one), _tokens(other), autojunk=False).ratio()


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def adapted(text: str, before: str, now: str) -> str:
    """Returns the text with the words of the earlier goal replaced by those at the same position in
    the current goal.
    """
    changes = dict[str, str]()
    old, new = _QUOTED.findall(before), _QUOTED.findall(now)
    if len(old) == len(new):
        changes = {a: b for a, b in zip(old, new, strict=True) if a}
        before, now = _QUOTED.sub('""', before), _QUOTED.sub('""', now)
    a, b = _tokens(before), _tokens(now)
    # Texts of the same form are compared word by word; others by their common parts.
    same_form = len(a) == len(b) and 2 * sum(map(eq, a, b)) >= len(a)
    parts = (
        [("replace", i, i + 1, i, i + 1) for i in range(len(a)) if a[i] != b[i]]
        if same_form
        else None
    )
    for kind, a0, a1, b0, b1 in parts or SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "replace":
            pairs = (
                zip(a[a0:a1], b[b0:b1], strict=True)
                if a1 - a0 == b1 - b0
                else [(" ".join(a[a0:a1]), " ".join(b[b0:b1]))]
            )
            for one, other in pairs:
                if not re.search(r"\w", one):
                    continue  # punctuation alone is not a name
                changes.setdefault(one, other)
                if (x := re.match(r"\d+", one)) and (y := re.match(r"\d+", other)):
                    changes.setdefault(x[0], y[0])
    if not changes:
        return text
    longest = sorted(changes, key=len, reverse=True)
    pattern = "|".join(
        rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])" if word[-1:].isalpha() else _apart(word)
        for word in longest
    )
    return re.sub(pattern, lambda match: changes[match[0]], text)


def _apart(word: str) -> str:
    return rf"(?<!\d){re.escape(word)}(?!\d)"


def _code(prompt: str) -> str:
    """Returns the example's code for this task. Empty if no code is requested."""
    if not prompt.rstrip().endswith("Code:"):
        return ""
    examples, task = _CODE.findall(prompt), _TASK.findall(prompt)[-1]
    before, code = max(examples, key=lambda example: _alike(example[0], task))
    return f"```python\n{adapted(code, before, task)}\n```"


def _words(prompt: str) -> str:
    """Returns the abstraction of the example with the most similar page."""
    state = seen_of(_PAGE.findall(prompt)[-1])
    pairs = _PAIR.findall(prompt)
    if not pairs:
        return state
    before, words = max(pairs, key=lambda pair: _alike(seen_of(pair[0]), state))
    return adapted(words, seen_of(before), state)
