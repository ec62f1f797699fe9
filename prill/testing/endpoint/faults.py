"""Fault injection of the mock server: settings and random draws."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from prill.errors import UsageError

FAULTS = (
    "rate_limit", "server_error", "drop", "stall", "garbage", "html", "cut", "unsuccessful",
    "refusal", "empty", "error_inside", "broken_off",
)  # fmt: skip
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

    # seconds before every answer, except refusals of the request and rate limits
    latency: float = 0.0
    # two servers with one seed treat the same requests alike, in whatever order they come
    seed: int = 0

    rate_limit: float = 0.0  # rate of 429 answers with Retry-After
    retry_after: float = 1.0  # seconds in the Retry-After header; fractions are sent as they are
    server_error: float = 0.0  # rate of 500 answers
    drop: float = 0.0  # rate of connections closed without an answer
    stall: float = 0.0  # rate of requests left without an answer, then closed
    stall_seconds: float = 30.0  # how long a stall lasts
    garbage: float = 0.0  # rate of well-formed replies that hold no verdict
    html: float = 0.0  # rate of 200 answers whose body is a proxy's HTML page
    # rate of replies cut in the middle, half of them reported as finish_reason length
    cut: float = 0.0
    # rate of replies whose verdict is the word 'unsuccessful', whatever the truth
    unsuccessful: float = 0.0
    refusal: float = 0.0  # rate of refusals: a refusal message, or a content filter's finish reason
    empty: float = 0.0  # rate of replies with empty or null content

    error_inside: float = 0.0  # rate of 200 answers that hold an error of status 502 and no reply
    broken_off: float = 0.0  # rate of replies that break off with finish_reason error or abort

    refuse_key: bool = False  # answer 401 to every request
    unknown_model: bool = False  # answer 404 to every completion: no such model
    # answer 400 to requests with images, in the words of one of three real servers
    no_images: bool = False
    no_json_schema: bool = False  # answer 400 to response_format json_schema
    no_json_object: bool = False  # answer 400 to response_format json_object
    # accept any response_format and reply with tagged lines all the same
    ignore_format: bool = False
    no_temperature: bool = False  # answer 400 to any temperature but 1
    no_max_tokens: bool = False  # answer 400 to max_tokens and ask for max_completion_tokens
    no_logprobs: bool = False  # answer 400 to requests for log-probabilities
    logprobs_status: int = 400  # status of the answer to refused log-probabilities
    most_logprobs: int = 0  # answer 400 to more alternatives for a token than this; 0: no limit
    # answer 400 to a system role, as chat templates without one make servers do
    no_system: bool = False
    # answer 401 without an api-key header, and 404 without ?api-version= in the URL
    api_key_header: bool = False
    no_credit: bool = False  # answer 402 to every request: the account cannot pay
    # form of error bodies: openai, list (of one, in Google's form), detail (a list of problems) or
    # text
    error_form: str = "openai"
    # form of log-probabilities: openai, null, missing, nulls (inside) or lists
    logprobs_form: str = "openai"
    usage_form: str = "openai"  # form of token counts: openai, null, missing, float or negative
    content_form: str = "text"  # form of replies: text, or parts (a list of them)
    context: int = 0  # answer 400 to prompts of more tokens than this; 0: no limit
    # words of that answer: openai, vllm (which counts max_tokens too), llama.cpp, anthropic, gemini
    # or mute (no number)
    context_form: str = "openai"
    # field of the list of models that tells the context, such as max_model_len; empty: none
    window_field: str = ""
    most_images: int = 0  # answer 400 to more images in one request than this; 0: no limit
    no_bounds: bool = False  # answer 400 to schemas with minItems, maxLength, maximum and the like
    no_reasoning_effort: bool = False  # answer 400 to a reasoning effort
    no_detail: bool = False  # answer 400 to images that say how closely to look
    slots: int = 0  # answer 429 to requests beyond this many in flight; 0: no limit
    # length of the reasoning before the verdict; replies are cut at the asked-for limit
    thought_tokens: int = 24
    # tokens that are thought for before each reply, counted and cut like those of the reply
    hidden_thought: int = 0
    # field of the message that holds the thought, such as reasoning_content; content: between
    # <think> tags; empty: none
    thought_field: str = ""
    # module:function that gives the true verdict for a user's text
    truth: str = "prill.testing:marked_truth"

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
