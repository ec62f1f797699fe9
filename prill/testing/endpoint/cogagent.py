"""Mock versions of the CogAgent authors' servers.

18B: `openai_demo/openai_api.py` of THUDM/CogVLM. 9B: `app/openai_demo.py` of THUDM/CogAgent. Both
decode pictures only from URLs that begin with `data:image/jpeg;base64,`; an exception inside them
is a 500 in plain text. Their replies here act once, in each model's own words; the 9B model ends
when the question tells of an action.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from prill.testing.endpoint.requests import Prompt, Rejection, Request, problem

Generation = Literal["18b", "9b"]
MODELS = {"18b": "cogvlm-chat-17b", "9b": "CogAgent"}  # by which name each lists itself
# What a reply may have where a request does not say; for the 9B model, its question and picture
# count in it.
_MAX_TOKENS = 1024
_PICTURE_TOKENS = 1_600
_ACTED = re.compile(r"^0\. ", re.MULTILINE)


def crash(generation: Generation, request: Request, prompt: Prompt) -> Rejection | None:
    """The answer to a request over which the server fails; None where it does not."""
    if prompt.last_role == "assistant":
        return Rejection(400, "malformed", problem("Invalid request"))
    if generation == "18b":  # it leaves other pictures out, and then takes the last of none
        fails = prompt.has_system or not prompt.jpegs
    else:  # it fetches other pictures by their URL, and its limit includes what was asked
        fails = prompt.images > prompt.jpegs or (request.max_tokens or _MAX_TOKENS) <= _tokens(
            prompt
        )
    return Rejection(500, "crash", b"Internal Server Error") if fails else None


def reply(generation: Generation, prompt: Prompt) -> str:
    """What the model says: only the last message was read."""
    if generation == "18b":
        return "Plan: 1. Press it.\nNext Action: Press it.\nGrounded Operation:tap [[500,250]]"
    if _ACTED.search(prompt.last_text):
        return "Action: It is done.\nGrounded Operation: END()\n<<END>>"
    return (
        "Action: Press it.\nGrounded Operation: CLICK(box=[[300,600,500,640]], "
        "element_info='OK')\n<<一般操作>>"
    )


def restate(generation: Generation, record: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """A completion in OpenAI's form as these servers put it: no reason why it ended, and counts
    that are none.
    """
    record["model"] = MODELS[generation]
    choice, asked = record["choices"][0], _tokens(prompt)
    total = 0 if generation == "18b" else record["usage"]["completion_tokens"]
    message = {"role": "assistant", "content": choice["message"]["content"], "name": None}
    record["choices"] = [{"index": 0, "message": message}]
    record["usage"] = {
        "prompt_tokens": asked,
        "completion_tokens": total - asked,
        "total_tokens": total,
    }
    return record


def _tokens(prompt: Prompt) -> int:
    return prompt.tokens_of_last + (_PICTURE_TOKENS if prompt.jpegs else 0)
