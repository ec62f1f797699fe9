"""Model calls in the report: truncated, compressed, and shown on demand."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prill.io.store import encode
from prill.types import Verdict
from prill.ui.report.entries import Judge, cut

if TYPE_CHECKING:
    from prill.models.transcripts import Call, ImageFile, Transcript

MAX_CALL_TEXT = 8000  # characters of one message or reply
MAX_CALLS_TEXT = 80_000  # characters of all calls of a verdict; the rest is left out


@dataclass(frozen=True, slots=True)
class CallLine:
    """One message: its role and text. Images are named."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call as the page shows it; see `prill.models.transcripts.Call`.

    `usd` is its cost in US dollars; None if only the cost of all calls is known.
    """

    model: str
    messages: tuple[CallLine, ...]
    reply: str | None
    reasoning: str | None
    error: str | None
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    seconds: float
    attempts: int
    cached: bool


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The calls of one verdict, and the number of calls that the page leaves out."""

    calls: tuple[Exchange, ...]
    left_out: int


def packed_calls(judge: Judge) -> Mapping[str, bytes]:
    """Returns the calls behind the judge's verdicts by trajectory id, as deflated JSON in base64.

    The result is empty without transcripts.
    """
    calls: dict[str, bytes] = {}
    if judge.transcripts is None or not judge.transcripts.is_dir():
        return calls
    from prill.models.transcripts import read_transcripts  # with the modules that call models

    for transcript in read_transcripts(judge.transcripts):
        verdict = judge.verdicts.get(transcript.id)
        if verdict is not None and verdict.key == transcript.key and transcript.calls:
            shown = encode(exchanges(transcript, verdict))
            calls[transcript.id] = base64.b64encode(zlib.compress(shown))
    return calls


def exchanges(transcript: Transcript, verdict: Verdict) -> Exchanges:
    """Returns the calls behind a verdict with long texts truncated, up to the page's limit."""
    calls: list[Exchange] = []
    room = MAX_CALLS_TEXT
    for call, usd in zip(transcript.calls, _costs(transcript.calls, verdict), strict=True):
        exchange = _exchange(call, usd)
        texts = (
            exchange.reply,
            exchange.reasoning,
            exchange.error,
            *(line.text for line in exchange.messages),
        )
        room -= sum(len(text) for text in texts if text)
        if room < 0:
            break
        calls.append(exchange)
    return Exchanges(tuple(calls), len(transcript.calls) - len(calls))


def _costs(calls: Sequence[Call], verdict: Verdict) -> list[float | None]:
    """Returns each call's cost by the price table, if that adds up to the verdict's cost."""
    from prill.models.ledger import find_price

    total = verdict.usage.usd
    prices = [find_price(call.model) for call in calls]
    costs = [
        price.usd(call.prompt_tokens, call.completion_tokens) if price else 0.0
        for call, price in zip(calls, prices, strict=True)
    ]
    if total is None or not math.isclose(sum(costs), total, rel_tol=0.01):
        return [None] * len(calls)
    return list(costs)


def _exchange(call: Call, usd: float | None) -> Exchange:
    return Exchange(
        model=call.model,
        messages=tuple(
            CallLine(turn.role, cut("\n\n".join(map(_part_text, turn.parts)), MAX_CALL_TEXT))
            for turn in call.messages
        ),
        reply=call.reply and cut(call.reply, MAX_CALL_TEXT),
        reasoning=call.reasoning and cut(call.reasoning, MAX_CALL_TEXT),
        error=call.error and cut(call.error, MAX_CALL_TEXT),
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        usd=usd,
        seconds=call.seconds,
        attempts=call.attempts,
        cached=call.cached,
    )


def _part_text(part: str | ImageFile) -> str:
    return part if isinstance(part, str) else f"[picture {Path(part.path).name}]"
