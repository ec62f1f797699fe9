"""Mock versions of the CogAgent authors' servers.

18B: `openai_demo/openai_api.py` of THUDM/CogVLM. 9B: `app/openai_demo.py` of THUDM/CogAgent. Both
decode images only from URLs that begin with `data:image/jpeg;base64,`; an exception inside them is
a 500 in plain text. The mock replies contain one action, in each model's own format; the 9B model
ends when the question mentions a previous action.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from prill.testing.endpoint.requests import Prompt, Rejection, Request, problem

Generation = Literal["18b", "9b"]
MODELS = {"18b": "cogvlm-chat-17b", "9b": "CogAgent"}  # the name under which each lists itself
# The default limit of a reply; the 9B model's limit includes its question and image.
_MAX_TOKENS = 1024
_PICTURE_TOKENS = 1_600
_ACTED = re.compile(r"^0\. ", re.MULTILINE)


def crash(generation: Generation, request: Request, prompt: Prompt) -> Rejection | None:
    """Returns the error of a request that crashes the server; None if it does not."""
    if prompt.last_role == "assistant":
        return Rejection(400, "malformed", problem("Invalid request"))
    if generation == "18b":  # it ignores other images, and then takes the last of an empty list
        fails = prompt.has_system or not prompt.jpegs
    else:  # it fetches other images by URL, and its limit includes the prompt
        fails = prompt.images > prompt.jpegs or (request.max_tokens or _MAX_TOKENS) <= _tokens(
            prompt
        )
    return Rejection(500, "crash", b"Internal Server Error") if fails else None


def reply(generation: Generation, prompt: Prompt) -> str:
    """Returns the model's reply; only the last message is read."""
    if generation == "18b":
        return "Plan: 1. Press it.\nNext Action: Press it.\nGrounded Operation:tap [[500,250]]"
    if _ACTED.search(prompt.last_text):
        return "Action: It is done.\nGrounded Operation: END()\n<<END>>"
    return (
        "Action: Press it.\nGrounded Operation: CLICK(box=[[300,600,500,640]], "
        "element_info='OK')\n<<一般操作>>"
    )


def restate(generation: Generation, record: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Converts an OpenAI completion to these servers' form: without finish reason and token
    counts.
    """
    record["model"] = MODELS[generation]
    choice, prompt_tokens = record["choices"][0], _tokens(prompt)
    total = 0 if generation == "18b" else record["usage"]["completion_tokens"]
    message = {"role": "assistant", "content": choice["message"]["content"], "name": None}
    record["choices"] = [{"index": 0, "message": message}]
    record["usage"] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": total - prompt_tokens,
        "total_tokens": total,
    }
    return record


def _tokens(prompt: Prompt) -> int:
    return prompt.tokens_of_last + (_PICTURE_TOKENS if prompt.jpegs else 0)
