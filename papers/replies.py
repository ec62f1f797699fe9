"""Replies as chat models write them: what of a reply is the answer, and how many replies could not
be read.

Each paper has a grammar of its own; what stands around an answer is alike: thoughts between tags,
tokens of chat templates, Markdown, fences, JSON or tool calls in place of text, labels in other
languages. A reply without an answer, or with two that differ, is refused with words that the model
can be shown, and counted; it is never taken for an action. The forms of tool calls are those of
OpenAI's and Anthropic's APIs, and of the chat templates of Qwen, Llama 3.1 and Hermes.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from prill.actions.webarena import UnreadableActionError
from prill.models.replies import excerpt
from prill.protocols import Message

T = TypeVar("T")
MAX_CHARS = 20_000  # of a reply: what comes after them is not read
_MAX_SHOWN, _MAX_VALUES, _MAX_DEPTH = 3, 200, 5
_TAGS = "think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis"
_THOUGHTS_END = re.compile(rf"</(?:{_TAGS})>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_THOUGHTS_BEGIN = re.compile(rf"\s*(?:<(?:{_TAGS})>|\[THINK\]|◁think▷)", re.IGNORECASE)
# the harmony format of gpt-oss
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+).*?<\|message\|>", re.DOTALL)
_TOKENS = re.compile(r"<\|[\w ]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|<eos>|\[/?INST\]")
_WRAPPED = re.compile(
    r"<(answer|final_answer|output|response|result)>(.*?)</\1>", re.DOTALL | re.IGNORECASE
)
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE
)
_TICKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LEAD = re.compile(
    r"^(?:\s*(?:>+|#{1,6}(?=\s)|[-*•‣–+](?=\s)|\(?\d{1,3}[.):](?=\s)|(?:step|action|schritt|paso|étape|шаг)\s*\d+\s*[.:)-]|第\s*\d+\s*步\s*[:：]?))*\s*",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_CITED = re.compile(r"`[^`]*`|\[[^\]]*\]")
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|cannot|without|wrong|instead of|rather than|unless|if|nicht|kein\w*|no debo)\b|n['’]t\b|不",  # noqa: E501
    re.IGNORECASE,
)
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__|`")
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"), None) | {
    0xA0: " ",
    0x202F: " ",
}
_PARAMETER = r"<parameter(?:=| name=\"?)([\w-]+)\"?>\s*(.*?)\s*</parameter>"
_XML_CALL = re.compile(
    r"<(?:function|invoke)(?:=| name=\"?)([\w.-]+)\"?>(.*?)</(?:function|invoke)>", re.DOTALL
)
_NAMES = (
    "name",
    "function",
    "tool",
    "tool_name",
    "action",
    "action_type",
    "command",
    "operation",
    "verb",
    "type",
)
_ARGUMENTS = ("arguments", "parameters", "input", "args", "params", "kwargs", "action_input")
_INSIDE = (
    "tool_calls",
    "tool_call",
    "function_call",
    "function",
    "actions",
    "calls",
    "action",
    "plan",
    "steps",
)
# What an element is called among the arguments.
ELEMENT_NAMES = (
    "id",
    "element_id",
    "element",
    "ref",
    "target",
    "number",
    "index",
    "bid",
    "node_id",
    "element_number",
)
# What explains, and is no argument.
_WHY = (
    "reason",
    "reasoning",
    "thought",
    "thoughts",
    "explanation",
    "rationale",
    "description",
    "comment",
    "call_id",
)


class UnreadableReplyError(UnreadableActionError):
    """A reply that holds no answer, or two. The message says what was expected, in words that the
    model can be shown.
    """


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as JSON, as XML or as Python: the function in lower case, and what it is given, by
    name where there is one.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    def get(self, *names: str) -> Any:
        """The first argument with one of these names; None where there is none."""
        return next((value for key, value in self.arguments if key in names), None)

    def values(self) -> list[str]:
        """What it is given, as text."""
        return [_as_text(value) for _, value in self.arguments if value is not None]


@dataclass
class ReplyCounts:
    """How many replies were read in an episode, and how many could not be. `first` are the first
    unreadable ones, cut short.
    """

    calls: int = 0
    unreadable: int = 0
    repaired: int = 0
    first: list[str] = field(default_factory=list)

    def note(self, reply: str) -> None:
        """Counts a reply that could not be read."""
        self.unreadable += 1
        if len(self.first) < _MAX_SHOWN:
            self.first.append(excerpt(reply))

    def report(self) -> dict[str, Any]:
        """What the record of the episode says; nothing where no reply was read."""
        if not self.calls:
            return {}
        counts = {
            "calls": self.calls,
            "unreadable": self.unreadable,
            "repaired": self.repaired,
            "first": list(self.first),
        }
        return {"replies": counts}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFigures:
    """Replies of one or of many episodes, for tables.

    Args:
        calls: How many replies were read.
        unreadable: How many of them could not be read.
        repaired: How many of these were mended by asking once more.
        first: The first unreadable ones, cut short.
    """

    calls: int = 0
    unreadable: int = 0
    repaired: int = 0
    first: tuple[str, ...] = ()

    @classmethod
    def recorded(cls, metadata: Mapping[str, Any]) -> ReplyFigures:
        """Reads what the record of an episode says; nothing where it does not say."""
        try:
            return msgspec.convert(metadata.get("replies", {}), cls)
        except msgspec.ValidationError:
            return cls()

    def __add__(self, other: ReplyFigures) -> ReplyFigures:
        return ReplyFigures(
            calls=self.calls + other.calls,
            unreadable=self.unreadable + other.unreadable,
            repaired=self.repaired + other.repaired,
            first=(*self.first, *other.first)[:_MAX_SHOWN],
        )


async def ask_readable(
    ask: Callable[[Sequence[Message]], Awaitable[str]],
    messages: Sequence[Message],
    read: Callable[[str], T],
    counts: ReplyCounts,
    *,
    repair: bool,
) -> tuple[str, T]:
    """Asks, reads the reply, and counts it.

    Args:
        ask: Gives the reply to messages.
        messages: The request.
        read: Reads a reply.
        counts: Where it is counted.
        repair: Ask once more for a reply that cannot be read, with the error.

    Returns:
        The reply, and what was read in it.

    Raises:
        UnreadableActionError: The reply cannot be read, or the second one neither.
    """
    for tries in range(1 + repair):
        reply = await ask(messages)
        counts.calls += 1
        try:
            found = read(reply)
        except UnreadableActionError as problem:
            counts.note(reply)
            if tries == repair:
                raise
            messages = repair_messages(messages, reply, problem)
        else:
            counts.repaired += tries
            return reply, found
    raise AssertionError


def repair_messages(
    messages: Sequence[Message], reply: str, problem: object
) -> tuple[Message, ...]:
    """The request once more, with what was answered and why it cannot be used."""
    advice = (
        f"That cannot be used: {problem}. Answer again, in the form that was asked for, and "
        "with nothing else."
    )
    return (
        *messages,
        Message("assistant", (reply[:MAX_CHARS] or "(nothing)",)),
        Message("user", (advice,)),
    )


def visible_text(reply: str) -> str:
    """What a model says to others: without its thoughts, the tokens of its template, and tags
    around the answer.
    """
    text = reply[:MAX_CHARS].translate(_INVISIBLE)
    channels = list(_CHANNEL.finditer(text))
    if channels:
        if channels[-1][1].lower() not in ("final", "commentary"):
            return ""
        text = text[channels[-1].end() :]
    ends = [found.end() for found in _THOUGHTS_END.finditer(text)]
    text = text[ends[-1] :] if ends else text
    if _THOUGHTS_BEGIN.match(text):
        return ""
    text = _TOKENS.sub("", text)
    wrapped = [found[2] for found in _WRAPPED.finditer(text) if found[2].strip()]
    return (wrapped[-1] if len(set(wrapped)) == 1 else text).strip()


def fenced_blocks(text: str) -> list[str]:
    """What stands between fences, in order, without the language; a fence that is never closed
    holds nothing.
    """
    return [found[3].strip("\r\n") for found in _FENCE.finditer(text)]


def without_fences(text: str) -> str:
    """The text without the marks of fences; what stands between them stays."""
    return re.sub(r"^[ \t]*(?:```+|~~~+)[ \t]*[\w+-]*[ \t]*$", "", text, flags=re.MULTILINE)


def ticked_spans(text: str) -> list[str]:
    """What stands between single back-ticks on a line."""
    return [found[1].strip() for found in _TICKED.finditer(text)]


def asserted_text(text: str) -> str:
    """The sentences that a model stands by: without those that deny, or make a condition, of what
    they mention.

    What is quoted in back-ticks or brackets counts for neither.
    """
    sentences = _SENTENCE.split(text)
    return "\n".join(one for one in sentences if not _DENIED.search(_CITED.sub("", one)))


def plain_line(line: str) -> str:
    """A line without bullets, numbers, heading marks and emphasis; what is between double quotes
    stays as it is.
    """
    line = line[_LEAD.match(line).end() :] if len(line) <= MAX_CHARS else ""  # type: ignore[union-attr]
    if '"' not in line:
        line = re.sub("[“”„«»]", '"', line)
    parts = _QUOTED.split(line)
    parts[::2] = [_EMPHASIS.sub("", part) for part in parts[::2]]
    line = "".join(parts).strip()
    while len(line) > 1 and line[0] == line[-1] and line[0] in "*_":
        line = line[1:-1].strip()
    return line[_LEAD.match(line).end() :].strip()  # type: ignore[union-attr]


def one_answer(found: Iterable[T], shown: Callable[[T], str] = str) -> T | None:
    """The answer, where all that were found are the same; None where none was. Raises
    UnreadableReplyError for two.
    """
    distinct = list(dict.fromkeys(found))
    if len(distinct) > 1:
        two = " and ".join(excerpt(shown(one)) for one in distinct[:2])
        raise UnreadableReplyError(
            f"the reply has {len(distinct)} different answers, such as {two}: give exactly one"
        )
    return distinct[0] if distinct else None


def tool_calls(text: str) -> list[ToolCall]:
    """The calls in a text that are written as JSON or XML, in order."""
    found = [
        ToolCall(call[1].rpartition(".")[2].lower(), tuple(_xml_arguments(call[2])))
        for call in _XML_CALL.finditer(text)
    ]
    return found or [call for value in json_values(text) for call in _calls_in(value)]


def json_values(text: str) -> Iterator[Any]:
    """The objects, and the lists of objects, that a text holds, the outermost alone."""
    decoder, at, tried = json.JSONDecoder(strict=False), 0, 0
    while (
        (found := re.compile(r"[{\[]").search(text, at))
        and tried < _MAX_VALUES
        and len(text) <= MAX_CHARS
    ):
        tried += 1
        try:
            value, at = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.end()
            continue
        if isinstance(value, dict) or (
            isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
        ):
            yield value


def lower_keys(value: Any) -> dict[str, Any]:
    """An object with its keys in lower case; empty for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key).lower(): one for key, one in value.items()}


def python_call(text: str) -> ToolCall | None:
    """The call that a text is, as Python has it: `click(5)`, `click(id=5)`; None for anything
    else.
    """
    text = text.strip().rstrip(";.")
    if not re.fullmatch(r"[A-Za-z_][\w.]*\(.*\)", text, re.DOTALL) or len(text) > MAX_CHARS:
        return None
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        given = [("", ast.literal_eval(one)) for one in call.args]
        given += [(one.arg or "", ast.literal_eval(one.value)) for one in call.keywords]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return ToolCall(name.lower(), tuple(given)) if name else None


def _calls_in(value: Any, depth: int = 0) -> Iterator[ToolCall]:
    """The calls of a decoded value: of one object, of a list of them, or of those inside it."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            yield from _calls_in(one, depth + 1)
        return
    if not isinstance(value, dict):
        return
    table = lower_keys(value)
    for key in _INSIDE:
        if isinstance(table.get(key), dict | list):
            yield from _calls_in(table[key], depth + 1)
            return
    name = next(
        (key for key in _NAMES if isinstance(table.get(key), str) and table[key].strip()), None
    )
    if name is None:
        only = next(iter(table.items()), None)
        # {"click": {"id": 5}}
        if len(table) == 1 and only is not None and isinstance(only[1], dict):
            yield _call(only[0], only[1])
        return
    given = next((table[key] for key in _ARGUMENTS if isinstance(table.get(key), dict | str)), None)
    if isinstance(given, str):
        given = _decoded(given)
    wrapping = table.get("type") in ("function", "tool_use", "function_call")
    rest = {
        key: one
        for key, one in table.items()
        if key != name and not (wrapping and key in ("type", "id"))
    }
    yield _call(table[name], given if isinstance(given, dict) else rest)


def _call(name: str, given: Mapping[str, Any]) -> ToolCall:
    """A name that is a whole action, such as `click [5]`, stays as it is written."""
    kept = tuple((key, one) for key, one in lower_keys(given).items() if key not in _WHY)
    name = name.strip()
    return ToolCall(name if re.search(r"\W", name) else name.lower(), kept)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _xml_arguments(body: str) -> Iterator[tuple[str, Any]]:
    parameters = re.findall(_PARAMETER, body, re.DOTALL)
    if parameters:
        yield from ((key.lower(), value) for key, value in parameters)
        return
    yield from lower_keys(_decoded(body.strip())).items()


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
