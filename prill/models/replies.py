"""Parses replies: the last verdict counts, and only offered answers are accepted.

A form describes the requested answer. `ReplyFormat`, a text and a verdict, is requested as a JSON
schema or as tagged lines, depending on the endpoint's capabilities, and parsed from either.
`RecordFormat` is any record, as JSON. arXiv 2404.06474 uses "Thoughts:" and "Status:" lines;
quotation marks, asterisks, final punctuation and line breaks around a verdict are tolerated, but
words such as "unsuccessful" are not verdicts. `choice_probability` computes a verdict's probability
from log-probabilities.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from prill.errors import UnparsableError
from prill.protocols import Token

if TYPE_CHECKING:
    from prill.protocols import Reply


_T = TypeVar("_T")
_DECORATION = " \t\r\n\"'`*_.,;:!<>()[]{}“”‘’"
_PERCENT, _EVEN = 100, 50
_THOUGHTS_END = "</think>"
_MAX_LOGPROB = 0.01  # rounding can put a certain token's log-probability slightly above 0
_REPEATED, _PERIOD = 600, 200  # characters at the end of a reply, and of what they repeat
_FENCE = re.compile(r"```[a-z]*[ \t]*\r?\n", re.IGNORECASE)
_json = json.JSONDecoder(strict=False)  # models write line breaks inside strings


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """A free text (the reasoning) followed by one of `choices` (the verdict), under these field
    names.

    `max_chars` limits the free text if the endpoint enforces schemas. `tagged` requests two lines
    of text, as in arXiv 2404.06474. With `number`, the verdict is followed by an integer from 0 to
    100 under that name; `number_means` describes it to the model. `number_of` is the verdict whose
    probability it is, and the opposite verdict: a number that contradicts them is unparsable.
    """

    text: str
    verdict: str
    choices: tuple[str, ...]
    max_chars: int | None = None
    tagged: bool = False
    number: str | None = None
    number_means: str = ""
    number_of: tuple[str, str] | None = None

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output. The reasoning comes before the verdict."""
        numbers = (
            {self.number: {"type": "integer", "minimum": 0, "maximum": 100}} if self.number else {}
        )
        text: dict[str, Any] = {"type": "string"}
        if self.max_chars is not None:
            text["maxLength"] = self.max_chars
        return {
            "type": "object",
            "properties": {
                self.text: text,
                self.verdict: {"type": "string", "enum": list(self.choices)},
                **numbers,
            },
            "required": [self.text, self.verdict, *numbers],
            "additionalProperties": False,
        }

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer."""
        if as_json:
            choices = " or ".join(f'"{choice}"' for choice in self.choices)
            number = f', "{self.number}": <{self._number_words}>' if self.number else ""
            shape = f'{{"{self.text}": "<your reasoning>", "{self.verdict}": {choices}{number}}}'
            return f"Reply with one JSON object and nothing else: {shape}"
        choices = " or ".join(self.choices)
        number = f"\n{self.number.capitalize()}: <{self._number_words}>" if self.number else ""
        return (
            f"Reply in this form:\n{self.text.capitalize()}: <your reasoning>\n"
            f"{self.verdict.capitalize()}: <one word: {choices}>{number}"
        )

    @property
    def _number_words(self) -> str:
        return f"a whole number from 0 to 100: {self.number_means}"

    def write(self, verdict: str, text: str) -> str:
        """Returns the reply with this reasoning and verdict."""
        if self.tagged:
            reason = " ".join(text.split())
            return f"{self.text.capitalize()}: {reason}\n{self.verdict.capitalize()}: {verdict}"
        return json.dumps({self.text: text, self.verdict: verdict}, ensure_ascii=False)

    def parse(self, text: str) -> dict[str, str]:
        """Returns the fields of an answer.

        Raises UnparsableError if the last verdict is missing or was not offered.
        """
        body = text.strip()
        if (
            (fence := _FENCE.match(body))
            and body.endswith("```")
            and len(body) >= fence.end() + len("```")
        ):
            body = body[fence.end() : -len("```")]
        last: tuple[str, str, int] | None = None  # verdict, reasoning, position
        number: object = None
        as_json = body.lstrip().startswith(("{", "["))
        for start, record in read_objects(body, from_the_start=as_json):
            if (verdict := _word(record.get(self.verdict))) is not None:
                reasoning = record.get(self.text)
                last = (verdict, reasoning if isinstance(reasoning, str) else "", start)
                number = record.get(self.number or "")
        # A reply that begins as JSON is either JSON or invalid: tagged lines inside its strings are
        # not the judge's own.
        if not as_json and (tagged := self._tagged(body)) and (not last or tagged[2] > last[2]):
            last, number = tagged, self._tagged_number(body[tagged[2] :])
        if last is None:
            raise UnparsableError(f"no {self.verdict} in the reply: {excerpt(text)}")
        word = _plain(last[0].strip(_DECORATION))
        for choice in self.choices:
            if word == _plain(choice):
                fields = {self.text: _storable(last[1].strip()), self.verdict: choice}
                return (
                    {**fields, self.number: self._percent(number, choice)}
                    if self.number
                    else fields
                )
        raise UnparsableError(
            f"{self.verdict} {excerpt(last[0])} is not one of {', '.join(self.choices)}"
        )

    def _tagged_number(self, text: str) -> str | None:
        if self.number is None:
            return None
        tag = rf"^[ \t>#*_\"'-]*{re.escape(self.number)}[ \t*_\"']*[:：](.*)$"
        found = list(re.finditer(tag, text, re.IGNORECASE | re.MULTILINE))
        return found[-1][1] if found else None

    def _percent(self, value: object, choice: str) -> str:
        """Returns the number as digits.

        Raises UnparsableError unless it is an integer from 0 to 100 (0.85 would be ambiguous) that
        agrees with the verdict.
        """
        words = (
            str(value).strip(_DECORATION)
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            else ""
        )
        match = re.fullmatch(r"(\d{1,3})(?:\.0+)?(?: ?%|/100)?", words)
        if match is None or int(match[1]) > _PERCENT:
            raise UnparsableError(
                f"{self.number} {excerpt(str(value))} is not an integer from 0 to 100"
            )
        percent = int(match[1])
        yes, no = self.number_of or ("", "")
        if (choice == yes and percent < _EVEN) or (choice == no and percent > _EVEN):
            raise UnparsableError(
                f"{self.number} {percent} contradicts {self.verdict} {choice}: it is "
                f"{self.number_means}"
            )
        return str(percent)

    def _tagged(self, text: str) -> tuple[str, str, int] | None:
        tags = list(
            re.finditer(
                rf"^[ \t>#*_\"'-]*{re.escape(self.verdict)}[ \t*_\"']*[:：]",
                text,
                re.IGNORECASE | re.MULTILINE,
            )
        )
        if not tags:
            # Some models put the verdict on the same line; accepted only after a sentence, if just
            # one word follows.
            ending = rf"(?<=[.!?])[ \t]+[*_]*{re.escape(self.verdict)}[ \t*_\"']*[:：](?=[ \t*_\"']*\S+\s*\Z)"  # noqa: E501
            tags = list(re.finditer(ending, text, re.IGNORECASE))
        if not tags:
            return None
        tag = tags[-1]
        lines = [line for line in text[tag.end() :].splitlines() if line.strip(_DECORATION)]
        value = lines[0] if lines else ""
        before = text[: tag.start()]
        opening = re.search(
            rf"^[ \t>#*_\"'-]*{re.escape(self.text)}[ \t*_\"']*[:：]",
            before,
            re.IGNORECASE | re.MULTILINE,
        )
        return value, before[opening.end() if opening else 0 :].strip(" \t\r\n*_"), tag.start()


@dataclass(frozen=True, slots=True)
class WordFormat:
    """A reply that is one word of several.

    The first token decides, and the alternatives to it give the probability. If the endpoint
    enforces schemas, the word is requested inside an object, so that weak models comply.

    Args:
        verdict: The name of the field.
        choices: The words.
        tagged: Request the bare word, even if the endpoint could enforce an object.
    """

    verdict: str
    choices: tuple[str, ...]
    tagged: bool = False

    def write(self, verdict: str) -> str:
        """Returns the reply for a word.

        Returns:
            The word, or the object that contains it.
        """
        return verdict if self.tagged else json.dumps({self.verdict: verdict})

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output."""
        return {
            "type": "object",
            "properties": {self.verdict: {"type": "string", "enum": list(self.choices)}},
            "required": [self.verdict],
            "additionalProperties": False,
        }

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer.

        It overrides a preceding prompt that asks for reasoning.
        """
        if as_json:
            choices = " or ".join(f'"{choice}"' for choice in self.choices)
            return (
                f'Think without writing it down: your whole reply is {{"{self.verdict}": '
                f"{choices}}}."
            )
        *others, last = self.choices
        return (
            f"Think without writing it down: your whole reply is one word, {', '.join(others)} "
            f"or {last}."
        )

    def parse(self, text: str) -> dict[str, str]:
        """Returns the word at the beginning, if none of the others follows it.

        Raises:
            UnparsableError: There is no such word.
        """
        words = re.sub(
            rf"^[\W_]*{re.escape(self.verdict)}[\W_]*[:：]", "", text, flags=re.IGNORECASE
        )
        found = {
            choice: re.search(rf"(?<!\w){choice.replace('-', '[-_ ]')}(?!\w)", words.lower())
            for choice in self.choices
        }
        named = [(choice, match.start()) for choice, match in found.items() if match]
        if len(named) != 1 or words[: named[0][1]].strip(_DECORATION):
            raise UnparsableError(
                f"the reply is not one of {', '.join(self.choices)}: {excerpt(text)}"
            )
        return {self.verdict: named[0][0]}


@dataclass(frozen=True, slots=True)
class GivenReply:
    """A reply that is given, not generated: its tokens' log-probabilities are what is asked for.

    Only models in this process (`embedded`, `local:`) compute them; other models raise
    EndpointError. `tokens`: the text in the model's vocabulary, which the embedded model fills in.
    """

    text: str
    tokens: tuple[int, ...] = ()
    tagged = True

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema of the text alone."""
        return {"type": "string", "enum": [self.text]}

    def instructions(self, *, as_json: bool) -> str:
        """Returns nothing: the model must not be told the text."""
        return ""

    def parse(self, text: str) -> dict[str, str]:
        """Returns no fields."""
        return {}


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[_T]):
    """A record of `type_`, a frozen dataclass, as one JSON object.

    `shape` shows the model the expected format in about one line.
    """

    type_: type[_T]
    shape: str
    tagged = False

    def json_schema(self) -> dict[str, Any]:
        """Returns a schema with all fields required and no others allowed, as strict endpoints
        demand.
        """
        return strict_schema(self.type_)

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer; always JSON."""
        return f"Reply with one JSON object and nothing else: {self.shape}"

    def parse(self, text: str) -> dict[str, str]:
        """Returns the last valid record of the reply as JSON under `record`. Raises
        UnparsableError.
        """
        last, problem = None, "it contains no JSON object"
        for _, record in read_objects(text, from_the_start=text.lstrip().startswith("{")):
            try:
                # not strict: without an enforced schema, some models write numbers as strings
                last = msgspec.convert(record, self.type_, strict=False)
            except msgspec.ValidationError as error:
                problem = str(error)
        if last is None:
            raise UnparsableError(
                f"the reply does not have the requested form ({problem}): {excerpt(text)}"
            )
        return {"record": _storable(json.dumps(msgspec.to_builtins(last), ensure_ascii=False))}

    def read(self, reply: Reply) -> _T:
        """Returns the record in a reply to this form."""
        return msgspec.json.decode(reply.fields["record"], type=self.type_)


def _plain(word: str) -> str:
    """Returns the normalised word: "Not sure" becomes "not-sure"."""
    return re.sub(r"[ _]", "-", word.lower())


def _word(value: object) -> str | None:
    """Returns the value as a verdict word.

    Integers count as words too, because some models write a score of "4" as 4.
    """
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def strict_schema(type_: type) -> dict[str, Any]:
    """Returns the JSON Schema of a dataclass with every field required and nothing else allowed,
    without references.
    """
    (schema,), parts = msgspec.json.schema_components([type_])
    return _strict(schema, parts)


def _strict(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema without references, with all properties required and no others."""
    if "$ref" in schema:
        return _strict(parts[schema["$ref"].rpartition("/")[2]], parts)
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            plain[key] = {name: _strict(part, parts) for name, part in value.items()}
        elif isinstance(value, dict):
            plain[key] = _strict(value, parts)
        elif isinstance(value, list) and key == "anyOf":
            plain[key] = [_strict(part, parts) for part in value]
        elif key not in ("title", "default", "description"):
            plain[key] = value
    if "enum" in plain and "type" not in plain:
        # some strict endpoints require `type`; the values of a literal all have one type here
        plain["type"] = (
            "string" if all(isinstance(value, str) for value in plain["enum"]) else "integer"
        )
    if "properties" in plain:
        plain |= {"required": list(plain["properties"]), "additionalProperties": False}
    return plain


def _storable(text: str) -> str:
    """Returns the text without unpaired surrogates, which JSON escapes can contain but UTF-8 files
    cannot.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def excerpt(text: str, limit: int = 120) -> str:
    """Returns a short excerpt for messages."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= limit else flat[: limit - 1] + "…")


def repeats(text: str) -> bool:
    """Returns whether the last 600 characters repeat a piece of at most 200, as small models do
    until they are stopped.
    """
    end = text[-_REPEATED:]
    return len(end) == _REPEATED and any(end[n:] == end[:-n] for n in range(1, _PERIOD + 1))


def read_objects(text: str, *, from_the_start: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the place of every outermost JSON object of a text, and the object.

    `from_the_start`: it does not search inside an invalid object.
    """
    at = text.find("{")
    while at >= 0:
        try:
            record, end = _json.raw_decode(text, at)
        except (ValueError, RecursionError):
            if from_the_start:
                return
            at = text.find("{", at + 1)
            continue
        if isinstance(record, dict):
            yield at, record
        at = text.find("{", end)


def choice_probability(
    tokens: Sequence[Token],
    field: str,
    choices: Sequence[str],
    choice: str,
    verdict: str | None = None,
) -> float | None:
    """Returns P(choice) among `choices`, in [0, 1], at the first token of the last value of
    `field`.

    `verdict` is the verdict that was parsed: other values of `field`, quoted in a later reasoning,
    are ignored. The probabilities of the candidate tokens are summed by the choice that they are a
    prefix of ("succ", "success" -> success). The sums are renormalised, because servers report
    probabilities before the constraint is applied. Returns None if the position cannot be found or
    no choice is among the candidates: an unknown probability is not 0.5.
    """
    text = "".join([token.text for token in tokens])
    words = "|".join(map(re.escape, choices if verdict is None else [verdict]))
    places = list(
        re.finditer(rf"{re.escape(field)}[\s\"'*_`]*[:][\s\"'*_`:]*({words})", text, re.IGNORECASE)
    )
    return _share_at(tokens, places[-1].start(1), choices, choice) if places else None


def word_probability(
    tokens: Sequence[Token], choices: Sequence[str], choice: str, verdict: str
) -> float | None:
    """Returns the same probability for a one-word reply, at the first occurrence of `verdict` after
    any reasoning.
    """
    text = "".join([token.text for token in tokens])
    place = re.compile(re.escape(verdict), re.IGNORECASE).search(
        text, max(0, text.rfind(_THOUGHTS_END))
    )
    return _share_at(tokens, place.start(), choices, choice) if place else None


def _share_at(
    tokens: Sequence[Token], offset: int, choices: Sequence[str], choice: str
) -> float | None:
    start = 0
    for token in tokens:
        end = start + len(token.text)
        if end > offset:
            return _share(token, token.text[: offset - start], choices, choice)
        start = end
    return None


def _share(token: Token, lead: str, choices: Sequence[str], choice: str) -> float | None:
    """Returns P(choice) from the candidates for one token, which begins with `lead`.

    Returns None if no choice is among them, or if one has a probability above 1, which would
    distort the others.
    """
    sums = dict.fromkeys(choices, 0.0)
    for text, logprob in dict([(token.text, token.logprob), *token.top]).items():
        if logprob > _MAX_LOGPROB:
            return None
        rest = text[len(lead) :].lower() if text.startswith(lead) else ""
        matches = [other for other in choices if rest and _begins(rest, other.lower())]
        if len(matches) == 1:
            sums[matches[0]] += math.exp(logprob)
    total = sum(sums.values())
    return sums[choice] / total if total > 0 else None


def _begins(text: str, choice: str) -> bool:
    """Returns whether the text is a prefix of the choice, or the choice followed by a non-letter.

    "successful" is a different word.
    """
    return choice.startswith(text) or (text.startswith(choice) and not text[len(choice)].isalnum())


_MAX_WORDS = 3_000  # maximum length of an error message that is processed
_OPENING = 40  # the reasoning must begin within this many characters


class TokenEntry(msgspec.Struct, frozen=True, gc=False):
    """One candidate token, as the API returns it."""

    token: str
    logprob: float
    top_logprobs: tuple[TokenEntry, ...] = ()


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """The `logprobs` object of a choice."""

    content: tuple[TokenEntry, ...] | None = None


class ChatMessage(msgspec.Struct, frozen=True, gc=False):
    """The model's message. Some endpoints return a refusal or the reasoning in separate fields.

    The reasoning has one of two field names.
    """

    content: str | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def answer(self) -> str | None:
        """Returns the content without reasoning inside it, which servers without a reasoning parser
        return.
        """
        return _split_reasoning(self.content)[1]

    @property
    def thoughts(self) -> str | None:
        """Returns the model's reasoning; None if the endpoint returned none as text."""
        texts = (self.reasoning_content, self.reasoning, _split_reasoning(self.content)[0])
        return next((text for text in texts if isinstance(text, str) and text), None)


# Reasoning in the content, in the format of most models and of Mistral's. The opening tag may be in
# the prompt (DeepSeek), and a truncated reply has no closing tag. JSON is never treated as
# reasoning, because it may quote a page that contains "</think>". Nor is `<reasoning>` that another
# tag follows: a protocol asked for both.
_THOUGHTS = (
    re.compile(
        r"\s*(?!<reasoning>.*?</reasoning>\s*<\w)"
        r"(?:<(think|thinking|reasoning)>|(\[THINK\]))(?P<thoughts>.*?)(?:</\1>|\[/THINK\]|\Z)",
        re.DOTALL,
    ),
    re.compile(r"(?!\s*[{\[])(?P<thoughts>.*?)</think>", re.DOTALL),
)


def _split_reasoning(content: str | None) -> tuple[str | None, str | None]:
    """Splits a content into its leading reasoning (or None) and the rest."""
    if content is None or (
        "</" not in content
        and "<" not in content[:_OPENING]
        and "[THINK]" not in content[:_OPENING]
    ):
        return None, content
    for pattern in _THOUGHTS:
        if found := pattern.match(content):
            return found["thoughts"].strip(), content[found.end() :].lstrip()
    return None, content


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One answer. `error`: the reason if the endpoint reports that there is none."""

    message: ChatMessage
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    error: Any = None


class TokenCounts(msgspec.Struct, frozen=True, gc=False):
    """The endpoint's token counts.

    Some endpoints include reasoning in the total but not in the completion (Gemini, xAI).
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    # {"cached_tokens": N} from OpenAI, vLLM, llama.cpp and others
    prompt_tokens_details: Any = None

    @property
    def cached_tokens(self) -> int | UnsetType:
        """Returns the tokens of the request that came from a cache; UNSET: not told."""
        told = self.prompt_tokens_details
        cached = told.get("cached_tokens") if isinstance(told, dict) else None
        return cached if type(cached) is int and 0 <= cached <= self.prompt_tokens else UNSET

    @property
    def reply_tokens(self) -> int:
        """Returns the tokens of the reply including reasoning, which costs the same."""
        return max(self.completion_tokens, self.total_tokens - self.prompt_tokens)


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The parts of a chat-completions response that prill reads."""

    choices: tuple[Choice, ...]
    usage: TokenCounts | None = None
    error: Any = None

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """Returns the reply's tokens with probabilities, or None if the endpoint returned none."""
        logprobs = self.choices[0].logprobs
        if logprobs is None or not logprobs.content:
            return None
        return tuple(
            [
                Token(t.token, t.logprob, tuple([(c.token, c.logprob) for c in t.top_logprobs]))
                for t in logprobs.content
            ]
        )


_MAX_TOKENS = 10**9  # maximum token count of one call
_decoder = msgspec.json.Decoder(Completion)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error inside a response of status 200.

    `status` is the status that the error contains, or None. `begun`: a reply had started, which is
    billed.
    """

    status: int | None
    message: str
    begun: bool = False


def decode_completion(
    data: bytes, hide: Callable[[str], str] = lambda text: text
) -> Completion | Failure | None:
    """Decodes a chat-completions response.

    Returns a Failure if the response reports one, and None if the body is not such a response (for
    example a proxy's page). Invalid probabilities or counts are dropped, and the reply is kept.
    `hide` masks secrets in the reply's texts; tokens that contain one are dropped.
    """
    completion: Completion | None
    try:
        completion = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        completion = _read_loosely(data)
    if completion is not None:
        choice = completion.choices[0] if completion.choices else None
        error = completion.error or (choice.error if choice else None)
        if error or (choice and choice.finish_reason in _FAILED):
            words = (
                f"the endpoint ended the reply with {choice.finish_reason!r}"
                if choice
                else "an error"
            )
            return _failure(error, words, begun=choice is not None)
        if choice is None:
            return None
        counts = completion.usage if completion.usage and _is_count(completion.usage) else None
        return Completion((_hidden(choice, hide),), counts)
    return None


def _hidden(choice: Choice, hide: Callable[[str], str]) -> Choice:
    """Returns the choice with the secrets in its texts masked."""
    message, logprobs = choice.message, choice.logprobs
    texts = (
        message.content,
        message.refusal,
        message.reasoning_content,
        message.reasoning,
        choice.finish_reason,
    )
    *parts, reason = (hide(text) if isinstance(text, str) else text for text in texts)
    tokens = (logprobs and logprobs.content) or ()
    spoken = "".join(token.token for token in tokens)
    others = "\n".join(other.token for token in tokens for other in token.top_logprobs)
    if (hide(spoken), hide(others)) != (spoken, others):
        logprobs = None
    return Choice(ChatMessage(*parts), reason, logprobs)


# Finish reasons of replies that the endpoint aborted; the partial text is not an answer.
_FAILED = frozenset({"error", "abort", "failed"})


def _failure(error: object, fallback: str, *, begun: bool) -> Failure:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
    return Failure(status, error_message(error, fallback), begun)


def _read_loosely(data: bytes) -> Completion | None:
    """Decodes a response whose less important parts are invalid."""
    try:
        record = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(message := first.get("message"), dict):
        return Completion((), error=record["error"]) if record.get("error") else None
    reason = first.get("finish_reason")
    choice = Choice(
        ChatMessage(
            _text(message.get("content")),
            _text(message.get("refusal")),
            message.get("reasoning_content"),
            message.get("reasoning") or _thinking(message.get("content")),
        ),
        reason if isinstance(reason, str) else None,
        _logprobs(first.get("logprobs")),
        first.get("error"),
    )
    return Completion((choice,), _counts(record.get("usage")), record.get("error"))


def _text(content: object) -> str | None:
    """Returns the content as one text; some endpoints return a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _thinking(content: object) -> str | None:
    """Returns the reasoning in a content that is a list of parts (Mistral)."""
    parts = (
        [part.get("thinking") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else []
    )
    return "".join(text for part in parts if (text := _text(part))) or None


def _logprobs(record: object) -> Logprobs | None:
    """Returns the log-probabilities, with nulls as empty lists; None if the format is unknown."""
    entries = record.get("content") if isinstance(record, dict) else None
    if not isinstance(entries, list):
        return None
    rows = [
        {**e, "top_logprobs": e.get("top_logprobs") or []} if isinstance(e, dict) else e
        for e in entries
    ]
    try:
        return Logprobs(msgspec.convert(rows, tuple[TokenEntry, ...]))
    except msgspec.ValidationError:
        return None


def _counts(record: object) -> TokenCounts | None:
    """Returns the counts as integers; None if one is missing or is not an integer."""
    if not isinstance(record, dict):
        return None
    total = record.get("total_tokens")
    counts = [
        record.get("prompt_tokens"),
        record.get("completion_tokens"),
        0 if total is None else total,
    ]
    numbers = [
        int(n) for n in counts if type(n) is int or (isinstance(n, float) and n.is_integer())
    ]
    if len(numbers) != len(counts):
        return None
    prompt, completion, all_tokens = numbers
    read = TokenCounts(prompt, completion, all_tokens, record.get("prompt_tokens_details"))
    return read if _is_count(read) else None


def _is_count(counts: TokenCounts) -> bool:
    """Returns False for impossible counts: some proxies report no tokens, and a budget would never
    be used up.
    """
    return (
        0 < counts.prompt_tokens < _MAX_TOKENS
        and 0 <= counts.completion_tokens <= counts.reply_tokens < _MAX_TOKENS
    )


def error_message(body: object, fallback: str) -> str:
    """Returns the message in an error body."""
    record: Any = body
    if isinstance(record, list) and record:
        record = record[0]
    # `vllm run-batch` nests an error in its error
    while isinstance(record, dict) and record.get("error"):
        record = record["error"]
    if isinstance(record, dict):
        record = " ".join(str(record[k]) for k in ("message", "code", "detail") if record.get(k))
    words = str(record) if record else fallback
    # Truncated before splitting: the words of a 64 MB body would take gigabytes.
    return " ".join(words.strip()[:_MAX_WORDS].split())[:300]


def parse_error(data: bytes, fallback: str = "no reason given") -> str:
    """Returns the message of a raw error body; `fallback` if it has none."""
    try:
        return error_message(msgspec.json.decode(data), fallback)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error_message(data.decode("utf-8", "replace"), fallback)
