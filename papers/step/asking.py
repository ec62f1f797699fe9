"""Builds the requests of a library's policies: rules and examples as the system message, the page
and the policy's history as the user message.
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
    """The input of a policy before one action. `previous` are lines of its own history, `lessons`
    those of earlier attempts.
    """

    objective: str
    observation: str
    url: str = ""
    previous: Sequence[str] = ()
    lessons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """Builds requests for the policies of a library. With `reasoning`, the model states a reason
    before each action.
    """

    library: Library
    reasoning: bool = True

    def messages(
        self, template: Template, turn: ReplyTurn, *, called: bool
    ) -> tuple[Message, Message]:
        """Returns the request. Each placeholder is filled once, so that placeholder text on a page
        is unchanged.
        """
        values = {**self._fixed(template, turn.url, called=called), **self._shown(template, turn)}
        values["memory_note"] = _wording()["memory_note"] if turn.lessons else ""
        return fill_prompt(_PACKAGE, _PROMPT, values)

    def tokens(self, template: Template) -> int:
        """Estimates the tokens of a policy's rules and examples with the text around them, without
        the page.
        """
        return sum(
            estimate_tokens(str(message.parts[0]))
            for message in self.messages(template, ReplyTurn("", ""), called=False)
        )

    def hash(self, template: Template) -> str:
        """Returns a hash of everything that is sent except the turn itself."""
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
            # Without spaces, an address cannot imitate a sentence.
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
    """Returns the text around the rules of every policy, in all its variants."""
    return load_prompt(_PACKAGE, _PROMPT).text + repr(_wording())


def _wording() -> dict[str, str]:
    return read_toml(_PACKAGE, "wording.toml")


def _origin(url: str) -> str:
    """Returns the origin of the open page, `http://localhost:7770`, because the rules name no
    host.
    """
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    return (
        f"{parts.scheme}://{parts.netloc}"
        if parts and re.fullmatch(r"[\w.:\[\]-]+", parts.netloc)
        else "the site"
    )
