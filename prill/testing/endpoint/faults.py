"""Fault injection of the mock server: settings and random draws."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from typing import Annotated, get_type_hints

from prill.errors import UsageError

FAULTS = (
    "rate_limit",
    "server_error",
    "drop",
    "stall",
    "garbage",
    "html",
    "cut",
    "unsuccessful",
    "refusal",
    "empty",
    "error_inside",
    "broken_off",
)
FORMS = {
    "error_form": ("openai", "list", "detail", "text"),
    "logprobs_form": ("openai", "null", "missing", "nulls", "lists"),
    "usage_form": ("openai", "null", "missing", "float", "negative"),
    "content_form": ("text", "parts"),
    "context_form": ("openai", "vllm", "llama.cpp", "anthropic", "gemini", "mute"),
}
_MARK = re.compile(r"\btruth=(success|failure)\b")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The settings of the mock server.

    Rates are fractions of the requests, between 0 and 1, and sum to at most 1.

    Raises:
        UsageError: A rate is outside [0, 1], the rates sum to more than 1, or a form is unknown.
    """

    latency: Annotated[
        float, "seconds before every answer, except refusals of the request and rate limits"
    ] = 0.0
    seed: Annotated[
        int, "two servers with one seed treat the same requests alike, in whatever order they come"
    ] = 0

    rate_limit: Annotated[float, "rate of 429 answers with Retry-After"] = 0.0
    retry_after: Annotated[
        float, "seconds in the Retry-After header; fractions are sent as they are"
    ] = 1.0
    server_error: Annotated[float, "rate of 500 answers"] = 0.0
    drop: Annotated[float, "rate of connections closed without an answer"] = 0.0
    stall: Annotated[float, "rate of requests left without an answer, then closed"] = 0.0
    stall_seconds: Annotated[float, "how long a stall lasts"] = 30.0
    garbage: Annotated[float, "rate of well-formed replies that hold no verdict"] = 0.0
    html: Annotated[float, "rate of 200 answers whose body is a proxy's HTML page"] = 0.0
    cut: Annotated[
        float, "rate of replies cut in the middle, half of them reported as finish_reason length"
    ] = 0.0
    unsuccessful: Annotated[
        float, "rate of replies whose verdict is the word 'unsuccessful', whatever the truth"
    ] = 0.0
    refusal: Annotated[
        float, "rate of refusals: a refusal message, or a content filter's finish reason"
    ] = 0.0
    empty: Annotated[float, "rate of replies with empty or null content"] = 0.0

    error_inside: Annotated[
        float, "rate of 200 answers that hold an error of status 502 and no reply"
    ] = 0.0
    broken_off: Annotated[
        float, "rate of replies that break off with finish_reason error or abort"
    ] = 0.0

    refuse_key: Annotated[bool, "answer 401 to every request"] = False
    unknown_model: Annotated[bool, "answer 404 to every completion: no such model"] = False
    no_images: Annotated[
        bool, "answer 400 to requests with images, in the words of one of three real servers"
    ] = False
    no_json_schema: Annotated[bool, "answer 400 to response_format json_schema"] = False
    no_json_object: Annotated[bool, "answer 400 to response_format json_object"] = False
    ignore_format: Annotated[
        bool, "accept any response_format and reply with tagged lines all the same"
    ] = False
    no_temperature: Annotated[bool, "answer 400 to any temperature but 1"] = False
    no_max_tokens: Annotated[bool, "answer 400 to max_tokens and ask for max_completion_tokens"] = (
        False
    )
    no_logprobs: Annotated[bool, "answer 400 to requests for log-probabilities"] = False
    logprobs_status: Annotated[int, "status of the answer to refused log-probabilities"] = 400
    most_logprobs: Annotated[
        int, "answer 400 to more alternatives for a token than this; 0: no limit"
    ] = 0
    no_system: Annotated[
        bool, "answer 400 to a system role, as chat templates without one make servers do"
    ] = False
    api_key_header: Annotated[
        bool, "answer 401 without an api-key header, and 404 without ?api-version= in the URL"
    ] = False
    no_credit: Annotated[bool, "answer 402 to every request: the account cannot pay"] = False
    error_form: Annotated[
        str,
        (
            "form of error bodies: openai, list (of one, in Google's form), detail (a list of "
            "problems) or text"
        ),
    ] = "openai"
    logprobs_form: Annotated[
        str, "form of log-probabilities: openai, null, missing, nulls (inside) or lists"
    ] = "openai"
    usage_form: Annotated[str, "form of token counts: openai, null, missing, float or negative"] = (
        "openai"
    )
    content_form: Annotated[str, "form of replies: text, or parts (a list of them)"] = "text"
    context: Annotated[int, "answer 400 to prompts of more tokens than this; 0: no limit"] = 0
    context_form: Annotated[
        str,
        (
            "words of that answer: openai, vllm (which counts max_tokens too), llama.cpp, "
            "anthropic, gemini or mute (no number)"
        ),
    ] = "openai"
    window_field: Annotated[
        str,
        "field of the list of models that tells the context, such as max_model_len; empty: none",
    ] = ""
    most_images: Annotated[
        int, "answer 400 to more images in one request than this; 0: no limit"
    ] = 0
    no_bounds: Annotated[
        bool, "answer 400 to schemas with minItems, maxLength, maximum and the like"
    ] = False
    no_reasoning_effort: Annotated[bool, "answer 400 to a reasoning effort"] = False
    no_detail: Annotated[bool, "answer 400 to images that say how closely to look"] = False
    slots: Annotated[int, "answer 429 to requests beyond this many in flight; 0: no limit"] = 0
    thought_tokens: Annotated[
        int, "length of the reasoning before the verdict; replies are cut at the asked-for limit"
    ] = 24
    hidden_thought: Annotated[
        int,
        "tokens that are thought for before each reply, counted and cut like those of the reply",
    ] = 0
    thought_field: Annotated[
        str,
        (
            "field of the message that holds the thought, such as reasoning_content; content: "
            "between <think> tags; empty: none"
        ),
    ] = ""
    truth: Annotated[str, "module:function that gives the true verdict for a user's text"] = (
        "prill.testing:marked_truth"
    )

    def __post_init__(self) -> None:
        rates = {name: float(getattr(self, name)) for name in FAULTS}
        for name, rate in rates.items():
            if not 0.0 <= rate <= 1.0:
                raise UsageError(f"{name} is {rate:g}; expected a share between 0 and 1")
        for name, forms in FORMS.items():
            if getattr(self, name) not in forms:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}; expected one of {', '.join(forms)}"
                )
        if sum(rates.values()) > 1.0 + 1e-9:
            raise UsageError(f"the rates sum to {sum(rates.values()):g}; expected at most 1")


def settings(
    faults: type[Faults] = Faults,
) -> list[tuple[str, type, str, float | int | bool | str]]:
    """Returns the name, type, description and default of every setting."""
    hints = get_type_hints(faults, include_extras=True)
    plain = faults()
    return [
        (f.name, hints[f.name].__origin__, hints[f.name].__metadata__[0], getattr(plain, f.name))
        for f in fields(faults)
    ]


def fate(faults: Faults, prompt: str, count: int) -> tuple[str, float]:
    """Returns the fault of the `count`-th request with this prompt, and a draw in [0, 1) for its
    details.

    The fault is one of FAULTS or "ok".
    """
    outcome, detail = _random_pair(f"{faults.seed} {prompt} {count}")
    for name in FAULTS:
        outcome -= getattr(faults, name)
        if outcome < 0:
            return name, detail
    return "ok", detail


def marked_truth(text: str) -> str:
    """Reads the verdict that a text requests by `truth=success` or `truth=failure`.

    Args:
        text: The text of a request.

    Returns:
        `"success"` or `"failure"`. Without a mark, it is derived from the text's hash.
    """
    if "truth=" in text and (mark := _MARK.search(text)):
        return mark[1]
    return "success" if _random_pair(text)[0] < 0.5 else "failure"


def certainty(text: str) -> float:
    """Returns the probability that a reply's log-probabilities give to its verdict.

    It depends on the user's text and is between 0.75 and 0.95.
    """
    return 0.75 + 0.2 * _random_pair(text)[1]


def _random_pair(key: str) -> tuple[float, float]:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:]) / 2**64
