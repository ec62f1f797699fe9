"""Parses replies: the last verdict wins, and only offered answers count.

A form says what is asked for. `ReplyFormat`, a text and a verdict, is sent as a JSON schema or as
tagged lines, whatever the endpoint can do, and read back from either; `RecordFormat` is any record,
as JSON. Rules of reading: arXiv 2404.06474 asks for "Thoughts:" and "Status:" lines; quotes,
asterisks, final punctuation and line breaks around a verdict are tolerated, words such as
"unsuccessful" are no verdict. `choice_probability` gives a verdict's probability from
log-probabilities.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from prill.errors import UnparsableError
from prill.protocols import Token

if TYPE_CHECKING:
    from prill.protocols import Reply


_T = TypeVar("_T")
_DECORATION = " \t\r\n\"'`*_.,;:!<>()[]{}“”‘’"
_PERCENT = 100
_THOUGHTS_END = "</think>"
_MAX_LOGPROB = 0.01  # rounding may put a certain token a little above 0
_FENCE = re.compile(r"```[a-z]*[ \t]*\r?\n", re.IGNORECASE)
_json = json.JSONDecoder(strict=False)  # as models write it, with line breaks in strings


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """A free text (the reasoning) and then one of `choices` (the verdict), under these field names.

    `max_chars` bounds the free text where the endpoint enforces schemas. `tagged` asks for two
    lines of text, as arXiv 2404.06474 does. With `number`, a whole number from 0 to 100 comes after
    the verdict, under that name; `number_means` tells the model what it says.
    """

    text: str
    verdict: str
    choices: tuple[str, ...]
    max_chars: int | None = None
    tagged: bool = False
    number: str | None = None
    number_means: str = ""

    def json_schema(self) -> dict[str, Any]:
        """The schema for structured output. The text comes first, so that the verdict follows from
        it.
        """
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
        """The instruction that tells the model how to answer."""
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
        """The reply with this verdict, behind this reasoning."""
        if self.tagged:
            reason = " ".join(text.split())
            return f"{self.text.capitalize()}: {reason}\n{self.verdict.capitalize()}: {verdict}"
        return json.dumps({self.text: text, self.verdict: verdict}, ensure_ascii=False)

    def parse(self, text: str) -> dict[str, str]:
        """The fields of an answer. Raises UnparsableError when the last verdict is missing, or none
        of those offered.
        """
        body = text.strip()
        if (
            (fence := _FENCE.match(body))
            and body.endswith("```")
            and len(body) >= fence.end() + len("```")
        ):
            body = body[fence.end() : -len("```")]
        last: tuple[str, str, int] | None = None  # verdict, reasoning, place
        number: object = None
        as_json = body.lstrip().startswith(("{", "["))
        for start, record in read_objects(body, from_the_start=as_json):
            if (verdict := _word(record.get(self.verdict))) is not None:
                reasoning = record.get(self.text)
                last = (verdict, reasoning if isinstance(reasoning, str) else "", start)
                number = record.get(self.number or "")
        # A reply that begins as JSON is JSON or broken: tagged lines inside its strings are not the
        # judge's own words.
        if not as_json and (tagged := self._tagged(body)) and (not last or tagged[2] > last[2]):
            last, number = tagged, self._tagged_number(body[tagged[2] :])
        if last is None:
            raise UnparsableError(f"no {self.verdict} in the reply: {excerpt(text)}")
        word = _plain(last[0].strip(_DECORATION))
        for choice in self.choices:
            if word == _plain(choice):
                fields = {self.text: _storable(last[1].strip()), self.verdict: choice}
                return {**fields, self.number: self._percent(number)} if self.number else fields
        raise UnparsableError(
            f"{self.verdict} {excerpt(last[0])} is none of {', '.join(self.choices)}"
        )

    def _tagged_number(self, text: str) -> str | None:
        if self.number is None:
            return None
        tag = rf"^[ \t>#*_\"'-]*{re.escape(self.number)}[ \t*_\"']*[:：](.*)$"
        found = list(re.finditer(tag, text, re.IGNORECASE | re.MULTILINE))
        return found[-1][1] if found else None

    def _percent(self, value: object) -> str:
        """The number as digits. Raises UnparsableError for what is no whole number from 0 to 100:
        0.85 might mean either.
        """
        words = (
            str(value).strip(_DECORATION)
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            else ""
        )
        match = re.fullmatch(r"(\d{1,3})(?:\.0+)?(?: ?%|/100)?", words)
        if match is None or int(match[1]) > _PERCENT:
            raise UnparsableError(
                f"{self.number} {excerpt(str(value))} is no whole number from 0 to 100"
            )
        return str(int(match[1]))

    def _tagged(self, text: str) -> tuple[str, str, int] | None:
        tags = list(
            re.finditer(
                rf"^[ \t>#*_\"'-]*{re.escape(self.verdict)}[ \t*_\"']*[:：]",
                text,
                re.IGNORECASE | re.MULTILINE,
            )
        )
        if not tags:
            # Some models go on in the same line: taken only behind a sentence, and where nothing
            # but a word follows.
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
    """A reply that is one word of several: its first token decides, and that token's alternatives
    tell the probability.

    Where the endpoint enforces schemas, the word stands in an object, so that a weak model keeps to
    it.

    Args:
        verdict: The name of the field.
        choices: The words.
        tagged: Ask for the bare word, even where the endpoint could enforce an object around it.
    """

    verdict: str
    choices: tuple[str, ...]
    tagged: bool = False

    def write(self, verdict: str) -> str:
        """Writes the reply that is one word.

        Args:
            verdict: The word.

        Returns:
            The word, or the object around it.
        """
        return verdict if self.tagged else json.dumps({self.verdict: verdict})

    def json_schema(self) -> dict[str, Any]:
        """The schema for structured output."""
        return {
            "type": "object",
            "properties": {self.verdict: {"type": "string", "enum": list(self.choices)}},
            "required": [self.verdict],
            "additionalProperties": False,
        }

    def instructions(self, *, as_json: bool) -> str:
        """The instruction that tells the model how to answer. It stands behind prompts that ask for
        thoughts.
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
        """The word at the beginning, where none of the others follows it.

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
                f"the reply is none of {', '.join(self.choices)}: {excerpt(text)}"
            )
        return {self.verdict: named[0][0]}


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[_T]):
    """A record of `type_`, a frozen dataclass, as one JSON object. `shape` shows the model what is
    wanted, in a line or so.
    """

    type_: type[_T]
    shape: str
    tagged = False

    def json_schema(self) -> dict[str, Any]:
        """The schema with every field required and nothing else allowed, which is what strict
        endpoints ask for.
        """
        return strict_schema(self.type_)

    def instructions(self, *, as_json: bool) -> str:
        """The sentence that tells the model how to answer; it is JSON in any case."""
        return f"Reply with one JSON object and nothing else: {self.shape}"

    def parse(self, text: str) -> dict[str, str]:
        """The last object of the reply that is such a record, as JSON under `record`. Raises
        UnparsableError.
        """
        last, problem = None, "it holds no JSON object"
        for _, record in read_objects(text, from_the_start=text.lstrip().startswith("{")):
            try:
                # Not strict: without an enforced schema, some models write numbers as texts.
                last = msgspec.convert(record, self.type_, strict=False)
            except msgspec.ValidationError as error:
                problem = str(error)
        if last is None:
            raise UnparsableError(
                f"the reply is not what was asked for ({problem}): {excerpt(text)}"
            )
        return {"record": _storable(json.dumps(msgspec.to_builtins(last), ensure_ascii=False))}

    def read(self, reply: Reply) -> _T:
        """The record that a reply to this form holds."""
        return msgspec.json.decode(reply.fields["record"], type=self.type_)


def _plain(word: str) -> str:
    """The word as it is compared: "Not sure" is "not-sure"."""
    return re.sub(r"[ _]", "-", word.lower())


def _word(value: object) -> str | None:
    """The value as a verdict; whole numbers are words too, since some models write a score of "4"
    as 4.
    """
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def strict_schema(type_: type) -> dict[str, Any]:
    """The JSON Schema of a type with every field required and nothing else allowed.

    Args:
        type_: A dataclass.

    Returns:
        The schema, without references.
    """
    (schema,), parts = msgspec.json.schema_components([type_])
    return _strict(schema, parts)


def _strict(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema without references, with all properties required and no others."""
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
        # Some strict endpoints want it said; a literal's values are all of one kind here.
        plain["type"] = (
            "string" if all(isinstance(value, str) for value in plain["enum"]) else "integer"
        )
    if "properties" in plain:
        plain |= {"required": list(plain["properties"]), "additionalProperties": False}
    return plain


def _storable(text: str) -> str:
    """The text without half characters, which JSON escapes can spell and UTF-8 files cannot
    hold.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def excerpt(text: str, limit: int = 120) -> str:
    """A short excerpt for messages."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= limit else flat[: limit - 1] + "…")


def read_objects(text: str, *, from_the_start: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Finds every outermost JSON object of a text.

    Args:
        text: The text.
        from_the_start: Look for nothing inside a broken object.

    Yields:
        The places of the objects and the objects.
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
    """P(choice) among `choices` in [0, 1], at the place where the last value of `field` begins.

    `verdict` is the one that was read from the reply: other values of `field`, quoted in a
    reasoning behind it, are no place.

    The candidates listed there are summed by the choice that they are a prefix of ("succ",
    "success" -> success) and the sums are renormalised, since servers report probabilities before
    the constraint is applied. None when the place cannot be found or no choice is among the
    candidates: an unknown probability is not 0.5.
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
    """The same for a reply that is one word, `verdict`: at its first place behind the thoughts, if
    there are any.
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
    """P(choice) by the candidates for one token, which begins with `lead`; None when no choice is
    among them, or when one has a probability above 1, by which the others would be scaled down.
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
    """True when the text is the choice or a beginning of it, or the choice and then no letter:
    "successful" is another word.
    """
    return choice.startswith(text) or (text.startswith(choice) and not text[len(choice)].isalnum())


_MAX_WORDS = 3_000  # characters of an error that are looked at
_OPENING = 40  # characters in which thoughts begin, if there are any


class TokenEntry(msgspec.Struct, frozen=True, gc=False):
    """One candidate token of the wire format."""

    token: str
    logprob: float
    top_logprobs: tuple[TokenEntry, ...] = ()


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """The `logprobs` object of a choice."""

    content: tuple[TokenEntry, ...] | None = None


class ChatMessage(msgspec.Struct, frozen=True, gc=False):
    """What the model said. Some endpoints give a refusal, or the model's thoughts, a field of its
    own (one of two names).
    """

    content: str | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def answer(self) -> str | None:
        """The content without thoughts that stand in it, as models write them whose server does not
        take them apart.
        """
        return _apart(self.content)[1]

    @property
    def thoughts(self) -> str | None:
        """The model's thoughts; None where the endpoint gives none, or none as a text."""
        texts = (self.reasoning_content, self.reasoning, _apart(self.content)[0])
        return next((text for text in texts if isinstance(text, str) and text), None)


# Thoughts in the content, in the words of most models and of Mistral's. The opening may stand in
# the prompt (DeepSeek); a reply that is cut has no end. JSON is never taken for thoughts: it may
# quote a page that says "</think>".
_THOUGHTS = (
    re.compile(
        r"\s*(?:<(think|thinking|reasoning)>|(\[THINK\]))(?P<thoughts>.*?)(?:</\1>|\[/THINK\]|\Z)",
        re.DOTALL,
    ),
    re.compile(r"(?!\s*[{\[])(?P<thoughts>.*?)</think>", re.DOTALL),
)


def _apart(content: str | None) -> tuple[str | None, str | None]:
    """The thoughts at the beginning of a content, and the rest; None for the first where there are
    none.
    """
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
    """One answer. `error`: why it is none, where an endpoint says so inside of it."""

    message: ChatMessage
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    error: Any = None


class TokenCounts(msgspec.Struct, frozen=True, gc=False):
    """What the endpoint says it counted. Some leave thoughts out of the completion, but not out of
    the total (Gemini, xAI).
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @property
    def reply_tokens(self) -> int:
        """The tokens of the reply and of thoughts, which cost the same."""
        return max(self.completion_tokens, self.total_tokens - self.prompt_tokens)


class Completion(msgspec.Struct, frozen=True, gc=False):
    """An answer to a chat-completions request, as far as prill reads it."""

    choices: tuple[Choice, ...]
    usage: TokenCounts | None = None
    error: Any = None

    @property
    def tokens(self) -> tuple[Token, ...] | None:
        """The reply's tokens with probabilities, None when the endpoint gave none."""
        logprobs = self.choices[0].logprobs
        if logprobs is None or not logprobs.content:
            return None
        return tuple(
            [
                Token(t.token, t.logprob, tuple([(c.token, c.logprob) for c in t.top_logprobs]))
                for t in logprobs.content
            ]
        )


_MAX_TOKENS = 10**9  # of one call
_decoder = msgspec.json.Decoder(Completion)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error inside an answer of status 200. `status` is the one that it names; None where it
    names none. `begun`: a reply had begun, which is paid for.
    """

    status: int | None
    message: str
    begun: bool = False


def decode_completion(data: bytes) -> Completion | Failure | None:
    """The completion; a failure where the answer says that there is none; None when the body is
    something else (a proxy's page, say). What is odd about probabilities or counts leaves these
    out: the reply stands.
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
        if (counts := completion.usage) and not _is_count(counts):
            return Completion(completion.choices)
    return completion


# Finish reasons of replies that broke off on the endpoint's side: whatever was written by then is
# no answer.
_FAILED = frozenset({"error", "abort", "failed"})


def _failure(error: object, fallback: str, *, begun: bool) -> Failure:
    code = str(error.get("code")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
    return Failure(status, error_message(error, fallback), begun)


def _read_loosely(data: bytes) -> Completion | None:
    """An answer whose less important parts are not as documented."""
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
    """The content as one text; some endpoints answer with a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _thinking(content: object) -> str | None:
    """The thoughts in a content that is a list of parts (Mistral)."""
    parts = (
        [part.get("thinking") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else []
    )
    return "".join(text for part in parts if (text := _text(part))) or None


def _logprobs(record: object) -> Logprobs | None:
    """The log-probabilities, with nulls taken for empty lists; None when they are in another
    form.
    """
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
    """The counts as whole numbers; None when one is missing or is no count: `true`, half a token, a
    text.
    """
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
    return (
        TokenCounts(*numbers)
        if len(numbers) == len(counts) and _is_count(TokenCounts(*numbers))
        else None
    )


def _is_count(counts: TokenCounts) -> bool:
    """False for what cannot have been counted: some proxies report no token, and a budget would
    never end.
    """
    return (
        0 < counts.prompt_tokens < _MAX_TOKENS
        and 0 <= counts.completion_tokens <= counts.reply_tokens < _MAX_TOKENS
    )


def error_message(body: object, fallback: str) -> str:
    """The message in an error body."""
    record: Any = body
    if isinstance(record, list) and record:
        record = record[0]
    # `vllm run-batch` has an error inside its error
    while isinstance(record, dict) and record.get("error"):
        record = record["error"]
    if isinstance(record, dict):
        record = " ".join(str(record[k]) for k in ("message", "code", "detail") if record.get(k))
    words = str(record) if record else fallback
    # Cut before it is divided into words: those of a body of 64 MB would take gigabytes.
    return " ".join(words.strip()[:_MAX_WORDS].split())[:300]


def parse_error(data: bytes, fallback: str = "no reason given") -> str:
    """The words of an error body as it came; `fallback` where it has none."""
    try:
        return error_message(msgspec.json.decode(data), fallback)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error_message(data.decode("utf-8", "replace"), fallback)
