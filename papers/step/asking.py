"""What a policy of a library is asked: its rules and examples as system text, the page and its own
history as the turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from prill.models.prompts import NONCE, clean, content_hash, estimate_tokens, load_prompt, quoted
from prill.papers.answers import fill_prompt
from prill.papers.files import read_toml
from prill.papers.step.library import Library, Template, WorkedExample
from prill.protocols import Message

_ORIGIN = re.compile(r"\{\{ *origin *\}\}")
_PACKAGE, _PROMPT = "prill.papers.step", "step"


@dataclass(frozen=True, slots=True)
class ReplyTurn:
    """What a policy is shown before one action: `previous` are lines of its own history, `lessons`
    of earlier attempts.
    """

    objective: str
    observation: str
    url: str = ""
    previous: Sequence[str] = ()
    lessons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """How the policies of a library are asked; `reasoning`: they say why before they act."""

    library: Library
    reasoning: bool = True

    def messages(
        self, template: Template, turn: ReplyTurn, *, called: bool
    ) -> tuple[Message, Message]:
        """The request. Every place is filled once, so that a page that holds the mark of a place
        stays as it is.
        """
        values = {**self._fixed(template, turn.url, called=called), **self._shown(template, turn)}
        values["memory_note"] = _wording()["memory_note"] if turn.lessons else ""
        return fill_prompt(_PACKAGE, _PROMPT, values)

    def tokens(self, template: Template) -> int:
        """About how many tokens the rules and examples of a policy take with all that stands around
        them, without the page.
        """
        return sum(
            estimate_tokens(str(message.parts[0]))
            for message in self.messages(template, ReplyTurn("", ""), called=False)
        )

    def hash(self, template: Template) -> str:
        """Follows everything that is sent besides the turn itself."""
        return content_hash(prompt_text(), self.library.hash, repr((template, self.reasoning)))

    def _fixed(self, template: Template, url: str, *, called: bool) -> dict[str, str]:
        front, around, words = template.front, self.library.surroundings, _wording()
        others = [self.library.templates[name] for name in front.calls]
        return {
            "code": NONCE,
            "purpose": front.purpose,
            "called": words["called"] if called else "",
            "about": around.about.strip(),
            "verbs": "\n".join(around.verbs[verb] for verb in front.verbs if verb in around.verbs),
            "stop": words["stop_called" if called else "stop"],
            "calls": words["calls"]
            + "".join(f"`{one.usage}`: {one.front.purpose}.\n" for one in others)
            if others
            else "",
            "form": words["form" if self.reasoning else "form_direct"],
            "rules": _ORIGIN.sub(lambda _: _origin(url), template.rules) or words["rules"],
            "examples": "".join(
                self._example(i, one) for i, one in enumerate(template.examples, 1)
            ),
        }

    def _shown(self, template: Template, turn: ReplyTurn) -> dict[str, str]:
        return {
            "objective": clean(turn.objective),
            "observation": quoted("page", turn.observation),
            # Without blanks, an address cannot read like a sentence.
            "url": "%20".join(clean(turn.url).split())[:500],
            "previous": quoted("previous", "\n".join(turn.previous)) if turn.previous else "None",
            "memory": f"MEMORY:\n{quoted('memory', chr(10).join(turn.lessons))}\n"
            if turn.lessons
            else "",
            "remind": f"{template.front.remind}\n{_wording()['ask' if self.reasoning else 'ask_direct']}".strip(),  # noqa: E501
        }

    def _example(self, number: int, example: WorkedExample) -> str:
        previous = quoted("previous", "\n".join(example.previous)) if example.previous else "None"
        reason = f"REASON: {example.reason}\n" if self.reasoning else ""
        return (
            f"\nEXAMPLE {number}. Input:\nOBJECTIVE: "
            f"{example.objective}\nOBSERVATION:\n{quoted('page', example.observation)}\n"
            f"URL: {example.url}\nPREVIOUS ACTIONS:\n{previous}\nResponse:\n{reason}ACTION: "
            f"{example.action}\n"
        )


def prompt_text() -> str:
    """What stands around the rules of every policy, in all its variants."""
    return load_prompt(_PACKAGE, _PROMPT).text + repr(_wording())


def _wording() -> dict[str, str]:
    return read_toml(_PACKAGE, "wording.toml")


def _origin(url: str) -> str:
    """The host of the page that is open, `http://localhost:7770`: rules name no host of their
    own.
    """
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    return (
        f"{parts.scheme}://{parts.netloc}"
        if parts and re.fullmatch(r"[\w.:\[\]-]+", parts.netloc)
        else "the site"
    )
