"""What an endpoint turned out to understand: learnt from its refusals, remembered for the rest of the process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from prill.protocols import Form, SamplingLimits

_WORDS = {
    "format": r"response_format|json_schema|json_object|json schema|structured|grammar|guided",
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
        """What the name of a model says of it; nothing at temperature 0."""
        if self == GREEDY:
            return ""
        words = {"temperature": self.temperature, "seed": self.seed, **self.limits}
        return f" ({', '.join(f'{name} {value:g}' for name, value in words.items() if value is not None)})"


GREEDY = Sampling()
# Tokens that a model may think for, beyond those of the answer: raised when a reply was cut before it began.
THINKING = (0, 4_096, 16_384, 65_536)
TOP_LOGPROBS = 10  # alternatives for each token; hosted services allow 20 at most, some 5


@dataclass(slots=True)
class Dialect:
    """The request fields to use with one endpoint and model. Starts with the best and steps down when refused."""

    structured: Literal["json_schema", "json_object", "text"] = "json_schema"
    temperature: bool = True
    logprobs: bool = True
    top_logprobs: int = TOP_LOGPROBS
    seed: bool = True
    system: bool = True
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: int = 0
    limits: tuple[str, ...] = ("top_p", "top_k", "repetition_penalty")

    def fields(self, form: Form | None, max_tokens: int, sampling: Sampling = GREEDY) -> dict[str, Any]:
        """Everything of a request body but the model and the messages."""
        fields: dict[str, Any] = {self.token_limit: max_tokens + self.thinking}
        if self.temperature:
            fields["temperature"] = sampling.temperature
        if self.seed and sampling.seed is not None:
            fields["seed"] = sampling.seed
        fields |= {name: value for name, value in sampling.limits.items() if name in self.limits}
        if form is not None and self.logprobs:
            fields |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if form is None or form.tagged:
            return fields
        if self.structured == "json_schema":
            schema = {"name": "verdict", "strict": True, "schema": form.json_schema()}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.structured == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    def think_longer(self, thinking: int) -> bool:
        """Allow more tokens for thoughts than the `thinking` with which a reply held nothing else; False at the end of that.

        Whoever learns it second, of calls side by side, finds it raised already.
        """
        more = next((tokens for tokens in THINKING if tokens > thinking), thinking)
        self.thinking = max(self.thinking, more)
        return more > thinking

    def adapt(self, refusal: str, sent: dict[str, Any]) -> bool:
        """Take a step down after an error message about a field that was sent. False: it was about something else."""

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
        elif self.system and about("system"):
            self.system = False
        elif "temperature" in sent and about("temperature"):
            self.temperature = False
        elif "seed" in sent and about("seed"):
            self.seed = False
        elif refused := [name for name in self.limits if name in sent and about(name)]:
            self.limits = tuple(name for name in self.limits if name not in refused)
        elif "response_format" in sent and about("format"):
            self.step_down(sent)
        else:
            return False
        return True

    def step_down(self, sent: dict[str, Any]) -> None:
        """Use the next simpler way of asking for structure than the one that was sent."""
        self.structured = "json_object" if sent["response_format"]["type"] == "json_schema" else "text"
