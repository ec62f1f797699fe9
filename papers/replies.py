"""Requests to a paper's model, and the reading of its replies; the data files of a paper.

Each paper has its own answer grammar. The text around the answer is common to all: reasoning tags,
tokens of chat templates, Markdown, code fences, JSON or tool calls instead of text, labels in other
languages. A reply with no answer, or with two different ones, is refused and counted; it is never
taken for an action. The formats of tool calls are those of OpenAI's and Anthropic's APIs, and of
the chat templates of Qwen, Llama 3.1 and Hermes.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib import resources
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from prill.actions.webarena import UnreadableActionError
from prill.errors import TruncatedError, UnparsableError
from prill.models.calls import get_limits
from prill.models.prompts import load_prompt
from prill.models.replies import excerpt
from prill.protocols import LanguageModel, Message

RepairOption = Annotated[
    bool, Meta(description="Ask once more, with the error, if a reply cannot be parsed.")
]


ContextOption = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    Meta(
        description="Maximum number of tokens of a request, on recorded pages with its reply "
        "(default: the model's context window)."
    ),
]


@cache
def read_text(package: str, name: str) -> str:
    """Returns the text of a file in a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


@cache
def read_toml(package: str, name: str) -> dict[str, Any]:
    """Returns the table of a TOML file in a package."""
    return tomllib.loads(read_text(package, name))


_TRAINED = re.compile(r"local/|(?:vllm|embedded)/.*\+")


def is_trained(model: LanguageModel) -> bool:
    """Returns whether a model was trained for the agent's prompts: `local:MODEL`, or an adapter."""
    return _TRAINED.match(model.name) is not None


def fill_prompt(package: str, name: str, values: Mapping[str, str]) -> tuple[Message, Message]:
    """Returns the request made from a prompt of the package and these values."""
    turns = load_prompt(package, name).fill(values)
    return Message("system", (turns["system"],)), Message("user", (turns["user"],))


async def token_window(model: LanguageModel, wanted: int | None) -> int | None:
    """Returns `wanted`, else the model's context window in tokens. None if neither is known."""
    return (await get_limits(model)).window if wanted is None else wanted


async def complete_text(
    model: LanguageModel, messages: Sequence[Message], *, max_tokens: int, prompt: str
) -> str:
    """Returns the text of the model's reply. A truncated reply counts up to its end, because small
    models often continue after a complete answer. Raises UnparsableError without an answer.
    """
    try:
        text = (await model.complete(messages, max_tokens=max_tokens, prompt=prompt)).text
    except TruncatedError as cut:
        if not _answers(cut.text):
            raise
        return cut.text
    if not _answers(text):
        raise UnparsableError(
            "the reply contains only reasoning" if text.strip() else "the reply is empty"
        )
    return text


def _answers(text: str) -> bool:
    """Returns whether a reply has text besides the model's reasoning."""
    rest = text.rpartition("</think>")[2].strip()
    return bool(rest) and not rest.startswith("<think>")


_json = partial(json.dumps, ensure_ascii=False)
T = TypeVar("T")
MAX_CHARS = 20_000  # of a reply; the rest is ignored
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
_NAMES, _ARGUMENTS, _INSIDE, ELEMENT_NAMES, _WHY = map(
    tuple, read_toml("prill.papers", "replies.toml").values()
)


class UnreadableReplyError(UnreadableActionError):
    """Raised for a reply with no answer, or with two. The message can be shown to the model."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call: the function name in lower case, and the arguments, by name if they have one."""

    name: str
    arguments: tuple[tuple[str, Any], ...]

    def get(self, *names: str) -> Any:
        """Returns the first argument with one of these names. None if there is none."""
        return next((value for key, value in self.arguments if key in names), None)

    def values(self) -> list[str]:
        """Returns the argument values as text."""
        given = (int(one) if isinstance(one, bool) else one for _, one in self.arguments)
        return [one if isinstance(one, str) else _json(one) for one in given if one is not None]


@dataclass
class ReplyCounts:
    """The numbers of read and unreadable replies of one or many episodes, and the first unreadable
    ones.
    """

    calls: int = 0
    unreadable: int = 0
    repaired: int = 0
    first: list[str] = field(default_factory=list)

    def note(self, reply: str) -> None:
        """Counts a reply that could not be read."""
        self.unreadable += 1
        self.first = [*self.first, excerpt(reply)][:_MAX_SHOWN]

    def report(self) -> dict[str, Any]:
        """Returns the counts for the episode's metadata. Empty if no reply was read."""
        return {"replies": asdict(self)} if self.calls else {}

    def __add__(self, other: ReplyCounts) -> ReplyCounts:
        return ReplyCounts(
            self.calls + other.calls,
            self.unreadable + other.unreadable,
            self.repaired + other.repaired,
            [*self.first, *other.first][:_MAX_SHOWN],
        )


def recorded(metadata: Mapping[str, Any], name: str, counts: type[T]) -> T:
    """Reads counts from an episode's metadata. They are zero if the metadata has none."""
    try:
        return msgspec.convert(metadata.get(name, {}), counts)
    except msgspec.ValidationError:
        return counts()


async def ask_readable(
    ask: Callable[[Sequence[Message]], Awaitable[str]],
    messages: Sequence[Message],
    read: Callable[[str], T],
    counts: ReplyCounts,
    *,
    repair: int,
) -> tuple[str, T]:
    """Requests and parses a reply, and counts the result; asks again `repair` times, with the
    error.
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
            advice = (
                f"That cannot be used: {problem}. Answer again, in the form that was asked for, "
                "and with nothing else."
            )
            answered = Message("assistant", (reply[:MAX_CHARS] or "(nothing)",))
            messages = (*messages, answered, Message("user", (advice,)))
        else:
            counts.repaired += tries
            return reply, found
    raise AssertionError


class PaperAgent:
    """What the papers' agents share: the paper's settings, requests, and the counts of replies."""

    package: ClassVar[str]
    model: LanguageModel
    spec: Any  # its options, among them `repair`
    _replies: ReplyCounts

    def usual_settings(self, environment: str) -> dict[str, Any]:
        """Returns the paper's settings for an environment; empty if the paper does not use it."""
        return dict(read_toml(self.package, "settings.toml").get(environment, {}))

    def report(self) -> dict[str, Any]:
        """Returns how many replies of this episode could not be read."""
        return self._replies.report()

    async def _answer(
        self, messages: Sequence[Message], read: Callable[[str], T], *, max_tokens: int, prompt: str
    ) -> tuple[str, T]:
        """Returns the model's reply and what `read` finds in it. Raises as `ask_readable`."""
        ask = partial(complete_text, self.model, max_tokens=max_tokens, prompt=prompt)
        return await ask_readable(ask, messages, read, self._replies, repair=self.spec.repair)


def visible_text(reply: str) -> str:
    """Returns a reply without reasoning, template tokens, and tags around the answer."""
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
    """Returns the contents of closed code blocks, without the language name."""
    return [found[3].strip("\r\n") for found in _FENCE.finditer(text)]


def without_fences(text: str) -> str:
    """Returns the text without fence marks. The contents of the blocks stay."""
    return re.sub(r"^[ \t]*(?:```+|~~~+)[ \t]*[\w+-]*[ \t]*$", "", text, flags=re.MULTILINE)


def ticked_spans(text: str) -> list[str]:
    """Returns the contents of single-backtick spans on a line."""
    return [found[1].strip() for found in _TICKED.finditer(text)]


def asserted_text(text: str) -> str:
    """Returns the sentences of a text that are neither negated nor conditional."""
    sentences = _SENTENCE.split(text)
    return "\n".join(one for one in sentences if not _DENIED.search(_CITED.sub("", one)))


def plain_line(line: str) -> str:
    """Returns a line without bullets, numbers and emphasis outside double quotes."""
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
    """Returns the only answer, None without one. Raises UnreadableReplyError for different ones."""
    distinct = list(dict.fromkeys(found))
    if len(distinct) > 1:
        two = " and ".join(excerpt(shown(one)) for one in distinct[:2])
        raise UnreadableReplyError(
            f"the reply has {len(distinct)} different answers, such as {two}: give exactly one"
        )
    return distinct[0] if distinct else None


def tool_calls(text: str) -> list[ToolCall]:
    """Returns the JSON and XML tool calls in a text, in order."""
    found = []
    for name, body in _XML_CALL.findall(text):
        named = dict(re.findall(_PARAMETER, body, re.DOTALL)) or _decoded(body.strip())
        found.append(ToolCall(name.rpartition(".")[2].lower(), tuple(lower_keys(named).items())))
    return found or [call for value in json_values(text) for call in _calls_in(value)]


def json_values(text: str) -> Iterator[Any]:
    """Yields the outermost objects, and lists of objects, in a text."""
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
    """Returns an object with its keys in lower case. Empty for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key).lower(): one for key, one in value.items()}


def python_call(text: str) -> ToolCall | None:
    """Parses a Python call: `click(5)`, `click(id=5)`. None for any other text."""
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
    """Yields the calls in a decoded value, nested or not."""
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
        only = table.items() if len(table) == 1 else ()  # {"click": {"id": 5}}
        yield from (_call(key, one) for key, one in only if isinstance(one, dict))
        return
    given = next((table[key] for key in _ARGUMENTS if isinstance(table.get(key), dict | str)), None)
    given = _decoded(given) if isinstance(given, str) else given
    wrapping = table.get("type") in ("function", "tool_use", "function_call")
    rest = {
        key: one
        for key, one in table.items()
        if key != name and not (wrapping and key in ("type", "id"))
    }
    yield _call(table[name], given if isinstance(given, dict) else rest)


def _call(name: str, given: Mapping[str, Any]) -> ToolCall:
    """Makes a call. A name that is a complete action, such as `click [5]`, is unchanged."""
    arguments = tuple((key, one) for key, one in lower_keys(given).items() if key not in _WHY)
    name = name.strip()
    return ToolCall(name if re.search(r"\W", name) else name.lower(), arguments)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
