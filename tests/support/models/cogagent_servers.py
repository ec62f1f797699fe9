"""Mock versions of the CogAgent authors' servers.

18B: `openai_demo/openai_api.py` of THUDM/CogVLM. 9B: `app/openai_demo.py` of THUDM/CogAgent. Both
decode images only from URLs that begin with `data:image/jpeg;base64,`; an exception inside them is
a 500 in plain text. The mock replies contain one action, in each model's own format; the 9B model
ends when the question mentions a previous action. Only the last message is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from prill.testing.endpoint.replies import MockEndpoint
from prill.testing.endpoint.requests import count_tokens

if TYPE_CHECKING:
    from aiohttp import web

# The default limit of a reply; the 9B model's limit includes its question and image.
_MAX_TOKENS = 1024
_PICTURE_TOKENS = 1_600
_ACTED = re.compile(r"^0\. ", re.MULTILINE)


class CogAgent18B(MockEndpoint):
    """The server of the 18B model; it ignores other images, and then takes the last of none."""

    name = "cogvlm-chat-17b"

    async def complete(self, http: web.Request) -> web.StreamResponse:
        """Returns one completion, without finish reason and token counts, or the crash."""
        from aiohttp import web

        request = msgspec.json.decode(await http.read())
        turns = [(turn["role"], _parts(turn["content"])) for turn in request["messages"]]
        urls = [part["image_url"]["url"] for _, parts in turns for part in parts if _is_image(part)]
        jpegs = sum(url.startswith("data:image/jpeg;base64,") for url in urls)
        text = "\n".join(part["text"] for part in turns[-1][1] if part["type"] == "text")
        tokens = count_tokens(text) + (_PICTURE_TOKENS if jpegs else 0)
        limit = request.get("max_tokens") or _MAX_TOKENS
        if self.crashes("system" in dict(turns), len(urls), jpegs, limit <= tokens):
            self.outcomes["crash"] += 1
            return web.Response(status=500, text="Internal Server Error")
        self.outcomes["ok"] += 1
        message = {"role": "assistant", "content": self.action(text), "name": None}
        total = self.total(count_tokens(str(message["content"])) + tokens)
        usage = {"prompt_tokens": tokens, "completion_tokens": total - tokens}
        answer = {"model": self.name, "choices": [{"index": 0, "message": message}]}
        return web.json_response({**answer, "usage": {**usage, "total_tokens": total}})

    def crashes(self, system: bool, images: int, jpegs: int, too_long: bool) -> bool:
        """Whether a request makes the server fail."""
        return system or not jpegs

    def action(self, text: str) -> str:
        """The reply to a question."""
        return "Plan: 1. Press it.\nNext Action: Press it.\nGrounded Operation:tap [[500,250]]"

    def total(self, tokens: int) -> int:
        """The total that it reports: none, so that fewer tokens than none are of the reply."""
        return 0


class CogAgent9B(CogAgent18B):
    """The server of the 9B model; it fetches other images by URL."""

    name = "CogAgent"

    def crashes(self, system: bool, images: int, jpegs: int, too_long: bool) -> bool:
        return images > jpegs or too_long

    def action(self, text: str) -> str:
        if _ACTED.search(text):
            return "Action: It is done.\nGrounded Operation: END()\n<<END>>"
        return (
            "Action: Press it.\nGrounded Operation: CLICK(box=[[300,600,500,640]], "
            "element_info='OK')\n<<一般操作>>"
        )

    def total(self, tokens: int) -> int:
        return tokens


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_image(part: dict[str, Any]) -> bool:
    return bool(part["type"] == "image_url")
