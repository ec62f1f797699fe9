"""What the mock server says: the text of a reply, its tokens with log-probabilities, and the body around them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from prill.fakes.faults import Faults, certainty

OPPOSITE = {"success": "failure", "failure": "success"}
# The other verdict is named on purpose: whoever reads words instead of the verdict, or half a reply, is caught.
THOUGHTS = {
    "success": "because what first looked like a failure was put right, and the last screen shows what was asked for",
    "failure": "because what first looked like a success was undone, and the last screen lacks what was asked for",
}
GARBAGE = (
    "I would need to see more of the screen to say anything about it.",
    "Thoughts: the weather is fine today\nStatus: unknown",
    '{"answer": 42}',
    "{}",
    "Status:",
    "lorem ipsum dolor sit amet " * 8,
)
CHARS_PER_TOKEN = 4
_TOKEN = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
_encode = msgspec.json.encode


def tokens_of(text: str) -> int:
    """The mock's count of tokens: one for four characters."""
    return len(text) // CHARS_PER_TOKEN + 1


def reply_text(faults: Faults, word: str, truth: str, form: Mapping[str, Any] | None) -> str:
    """A reply with the verdict `word`: a JSON object where `form`, the response_format, asks for one, else tagged lines."""
    thoughts = THOUGHTS.get(truth, "because the last screen shows it")
    thoughts = (thoughts + " and so on" * faults.thought_tokens)[: max(len(thoughts), faults.thought_tokens * CHARS_PER_TOKEN)]
    kind = "text" if form is None or faults.ignore_format else form.get("type")
    if kind == "json_schema" and form is not None:
        return _encode(_filled(form["json_schema"].get("schema", {}), word, thoughts)).decode()
    if kind == "json_object":
        return _encode({"thoughts": thoughts, "status": word}).decode()
    return f"Thoughts: {thoughts}\nStatus: {word}"


def _filled(schema: Mapping[str, Any], word: str, thoughts: str) -> object:
    if "anyOf" in schema:
        return _filled(next(part for part in schema["anyOf"] if part.get("type") != "null"), word, thoughts)
    if "enum" in schema:
        return word if word in schema["enum"] or word == "unsuccessful" else schema["enum"][0]
    kind = schema.get("type")
    empty: dict[str, Callable[[], object]] = {
        "object": lambda: {name: _filled(part, word, thoughts) for name, part in schema.get("properties", {}).items()},
        "array": lambda: [_filled(schema.get("items", {}), word, thoughts)],
        "boolean": lambda: word == "success",
        "number": lambda: 1.0 if word == "success" else 0.25,
        "integer": lambda: 1,
    }
    return empty.get(str(kind), lambda: thoughts)()


def logprobs_of(text: str, word: str, asked: str, alternatives: int) -> dict[str, Any]:
    """The `logprobs` object of a reply. At the verdict, `certainty(asked)` is shared by the word and its first four letters.

    The opposite verdict has what is left but for a thousandth, which goes to a token that begins no verdict.
    """
    pieces = _TOKEN.findall(text)
    place = max((i for i, piece in enumerate(pieces) if piece.strip() == word), default=-1)
    content = []
    for i, piece in enumerate(pieces):
        top = {piece: 0.999}
        if i == place and word in OPPOSITE:
            space, p = piece[: -len(word)], certainty(asked)
            top = {piece: 0.9 * p, space + OPPOSITE[word]: 0.999 - p, space + word[:4]: 0.1 * p, space + "the": 0.001}
        entries = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in top.items()]
        content.append({**entries[0], "top_logprobs": sorted(entries, key=lambda e: e["logprob"], reverse=True)[:alternatives]})
    return {"content": content}


def completion(
    text: str | None,
    *,
    model: str,
    prompt_tokens: int,
    finish: str = "stop",
    refusal: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> bytes:
    """The body of a 200 answer."""
    reply_tokens = tokens_of(text or "")
    return b"".join(
        (
            b'{"id":"chatcmpl-mock","object":"chat.completion","created":1700000000,"model":',
            _encode(model),
            b',"choices":[{"index":0,"message":{"role":"assistant","content":',
            _encode(text),
            b',"refusal":',
            _encode(refusal),
            b'},"finish_reason":"%b","logprobs":' % finish.encode(),
            _encode(logprobs),
            b'}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}'
            % (prompt_tokens, reply_tokens, prompt_tokens + reply_tokens),
        )
    )


def problem(message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None) -> bytes:
    """The body of an error in OpenAI's form."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
