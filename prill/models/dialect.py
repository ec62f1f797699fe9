"""What an endpoint turned out to understand: learnt from its refusals, remembered for the rest of the process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.models.limits import Told, guessed_tokens, least_reply
from prill.protocols import Form, Limits, Message, SamplingLimits

# How long a model thinks before it answers, in OpenAI's words; which of them a model takes differs.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ImageDetail = Literal["low", "high", "auto"]
# Options of every model: how replies are drawn where nobody asks for a sample.
Temperature = Annotated[float | None, Meta(ge=0, description="how widely replies are drawn (default: 0, the likeliest)")]
TopP = Annotated[float | None, Meta(gt=0, le=1, description="draw from the likeliest tokens of so much probability")]
TopK = Annotated[int | None, Meta(ge=0, description="draw from so many likeliest tokens; 0: from all")]
RepetitionPenalty = Annotated[float | None, Meta(gt=0, description="what was said is so many times less likely; 1: no less")]

_WORDS = {
    "reasoning_effort": r"reasoning.?effort",
    "detail": r"image[^.]{0,60}\bdetail\b|[.'\"`]detail\b",
    "format": (
        r"response_format|json_schema|json_object|json schema|structured|grammar|guided|(min|max)(Items|Length|imum['\"`])"
    ),
    "temperature": r"temperature",
    "logprobs": r"logprob",
    "max_completion_tokens": r"max_completion_tokens",
    "seed": r"\bseed\b",
    "top_p": r"\btop_p\b",
    "top_k": r"\btop_k\b",
    "repetition_penalty": r"\brepetition_penalty\b",
    "system": r"system (role|message|prompt)s?\b.{0,40}\bnot\b|roles must alternate|only user,? (and )?(model|assistant) role",
}
# "top_logprobs must be at most 5", "Requested sample logprobs of 10, which is greater than max allowed: 5".
_MOST_LOGPROBS = r"(?:at most|max(?:imum)?(?: allowed)?(?: value)?(?: is)?|less than or equal to|<=|between 0 and)\D{0,12}(\d+)"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How replies are drawn: at temperature 0, or at another one with a seed, so that several samples differ.

    `limits` are those of `prill.protocols.SamplingLimits`.
    """

    temperature: float = 0.0
    seed: int | None = None
    limits: SamplingLimits = field(default_factory=SamplingLimits)

    @property
    def suffix(self) -> str:
        """What the name of a model says of it; nothing at temperature 0.

        Without a seed nothing was sampled: at temperature 0 the likeliest token is then the same within `top_p` and `top_k`.
        """
        words: dict[str, float | None] = {"temperature": self.temperature, "seed": self.seed, **self.limits}  # type: ignore[dict-item]
        if self.temperature == 0 and self.seed is None:
            words = {name: value for name, value in words.items() if name == "repetition_penalty"}
        told = ", ".join(f"{name} {value:g}" for name, value in words.items() if value is not None)
        return f" ({told})" if told else ""

    def drawn(self, temperature: float, seed: int, limits: SamplingLimits) -> Sampling:
        """A sample at another temperature: these limits hold, but for those that are given now."""
        return Sampling(temperature, seed, {**self.limits, **limits})


GREEDY = Sampling()


def sampling_options(
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    repetition_penalty: float | None = None,
) -> Sampling:
    """How replies are drawn by the options of a model; those that are None are not sent."""
    given = {"top_p": top_p, "top_k": top_k, "repetition_penalty": repetition_penalty}
    limits = {name: value for name, value in given.items() if value is not None}
    return Sampling(temperature or 0.0, None, SamplingLimits(**limits))  # type: ignore[typeddict-item]


# Tokens that a model may think for, beyond those of the answer: raised when a reply was cut before it began.
THINKING = (0, 4_096, 16_384, 65_536)
# What bounds lists, texts and numbers in a schema; some servers refuse them.
_BOUNDS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"})
TOP_LOGPROBS = 10  # alternatives for each token; hosted services allow 20 at most, some 5


@dataclass(slots=True)
class Dialect:
    """The request fields to use with one endpoint and model. Starts with the best and steps down when refused."""

    structured: Literal["json_schema", "json_object", "text"] = "json_schema"
    bounds: bool = True
    temperature: bool = True
    logprobs: bool = True
    top_logprobs: int = TOP_LOGPROBS
    seed: bool = True
    system: bool = True
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: int = 0
    sampling_limits: tuple[str, ...] = ("top_p", "top_k", "repetition_penalty")
    reasoning_effort: bool = True
    detail: bool = True
    window: int | None = None
    reply: int | None = None
    images: int | None = None

    @property
    def limits(self) -> Limits:
        """How much one request may hold, as far as it is known."""
        return Limits(self.window, self.images, self.thinking)

    def fields(
        self, form: Form | None, max_tokens: int, sampling: Sampling = GREEDY, effort: ReasoningEffort | None = None
    ) -> dict[str, Any]:
        """Everything of a request body but the model and the messages."""
        fields: dict[str, Any] = {self.token_limit: max_tokens + self.thinking}
        if self.reasoning_effort and effort is not None:
            fields["reasoning_effort"] = effort
        if self.temperature:
            fields["temperature"] = sampling.temperature
        if self.seed and sampling.seed is not None:
            fields["seed"] = sampling.seed
        fields |= {name: value for name, value in sampling.limits.items() if name in self.sampling_limits}
        if form is not None and self.logprobs:
            fields |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if form is None or form.tagged:
            return fields
        if self.structured == "json_schema":
            plain = form.json_schema()
            schema = {"name": "verdict", "strict": True, "schema": plain if self.bounds else _without_bounds(plain)}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.structured == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    def room_for_reply(self, max_tokens: int, request: Sequence[Message], tokens: int | None = None) -> int:
        """The limit of tokens to send: those of the answer and of thoughts, as far as the endpoint and its window allow.

        `tokens` are those of the request, where they are known; a guess keeps a part of the window for the reply in any case.
        """
        wanted = max_tokens + self.thinking
        if self.reply is not None:
            wanted = min(wanted, self.reply)
        if self.window is None:
            return wanted
        if tokens is not None:
            return min(wanted, max(1, self.window - tokens))
        return min(wanted, max(least_reply(self.limits, max_tokens), self.window - guessed_tokens(request)))

    def learn_sizes(self, told: Told, images: int | None) -> None:
        """Remember what a refusal said of the window; `images`: that many are the most in one request."""
        self.window = _least(self.window, told.window)
        self.images = _least(self.images, None if images is None else max(1, images))

    def think_longer(self, thinking: int) -> bool:
        """Allow more tokens for thoughts than the `thinking` with which a reply held nothing else; False at the end of that.

        Whoever learns it second, of calls side by side, finds it raised already.
        """
        more = next((tokens for tokens in THINKING if tokens > thinking), thinking)
        self.thinking = max(self.thinking, more)
        return more > thinking

    def adapt(self, refusal: str, sent: dict[str, Any], *, detail: bool, system: bool) -> bool:
        """Take a step down after an error message about a field that was sent. False: it was about something else.

        `detail`: the images that were sent said how closely to look at them; `system`: there was a system message. What was
        sent decides, not what is known by now: of calls side by side, each is sent again.
        """

        def about(what: str) -> bool:
            return re.search(_WORDS[what], refusal, re.IGNORECASE) is not None

        if "max_tokens" in sent and about("max_completion_tokens"):
            self.token_limit = "max_completion_tokens"
        elif "logprobs" in sent and about("logprobs"):
            limit = re.search(_MOST_LOGPROBS, refusal, re.IGNORECASE)
            if limit and 0 < int(limit[1]) < sent["top_logprobs"]:
                self.top_logprobs = int(limit[1])
            else:
                self.logprobs = False
        elif system and about("system"):
            self.system = False
        elif "temperature" in sent and about("temperature"):
            self.temperature = False
        elif "seed" in sent and about("seed"):
            self.seed = False
        elif refused := [name for name in self.sampling_limits if name in sent and about(name)]:
            self.sampling_limits = tuple(name for name in self.sampling_limits if name not in refused)
        elif "reasoning_effort" in sent and about("reasoning_effort"):
            self.reasoning_effort = False
        elif detail and about("detail"):
            self.detail = False
        elif "response_format" in sent and about("format"):
            self.step_down(sent)
        else:
            return False
        return True

    def step_down(self, sent: dict[str, Any]) -> None:
        """Use the next simpler way of asking for structure than the one that was sent: bounds go before the schema goes."""
        form = sent["response_format"]
        if form["type"] != "json_schema":
            self.structured = "text"
        elif _without_bounds(form["json_schema"]) != form["json_schema"]:
            self.bounds = False
        else:
            self.structured = "json_object"


def _least(known: int | None, told: int | None) -> int | None:
    return min((count for count in (known, told) if count is not None), default=None)


def _without_bounds(schema: Any) -> Any:
    """The schema without bounds of lists, texts and numbers."""
    if isinstance(schema, list):
        return [_without_bounds(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_bounds(part) for key, part in schema.items() if key not in _BOUNDS or isinstance(part, dict)}
