"""Converts verdicts to other tools' forms: OpenInference spans, LangSmith feedback, scores in
logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from prill.types import Verdict

Record = dict[str, Any]
KEY = "prill"  # the key of verdicts in logs with free-form metadata
_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SPANS = 1_000  # per line of OTLP


def annotation_name(verdict: Verdict) -> str:
    """Returns the name of a judge's annotations, which separates them from those of other tools."""
    return f"{KEY}/{verdict.evaluator.name}"


def outcome(verdict: Verdict) -> str:
    """Returns a verdict as one word: success, failure or unscored."""
    return "unscored" if verdict.success is None else "success" if verdict.success else "failure"


def numeric_score(verdict: Verdict) -> float | None:
    """Returns the judge's score, or else 1 for success and 0 for failure.

    The result is None if the verdict is unscored.
    """
    if verdict.success is None:
        return None
    return verdict.score if verdict.score is not None else float(verdict.success)


def annotation(verdict: Verdict) -> Record:
    """Returns a verdict as a record for logs with free-form metadata, without its cost."""
    judge = {
        "name": verdict.evaluator.name,
        "version": verdict.evaluator.version,
        "model": verdict.evaluator.model,
    }
    fields = {
        "success": verdict.success,
        "score": verdict.score,
        "unscored": verdict.unscored,
        "reason": verdict.reason,
    }
    steps = {} if verdict.steps is None else {"steps": msgspec.to_builtins(verdict.steps)}
    return {"judge": judge, **fields, **steps}


def openinference(
    verdicts: Iterable[Verdict], ids: Mapping[str, Mapping[str, Any]], *, now: int
) -> Iterator[bytes]:
    """Yields lines of OTLP JSON: for each verdict an EVALUATOR span in the judged trace, with an
    annotation.

    Exported spans cannot be changed, but every collector accepts additional ones.
    (openinference-semantic-conventions 0.1.42, `SpanAttributes.TRACE_ANNOTATIONS`,
    `AnnotationAttributes`)

    Args:
        verdicts: The verdicts of traces: see `trace_id`.
        ids: The metadata of the trajectories by their id.
        now: The time of the spans, in nanoseconds since 1970.
    """
    service, spans = {"attributes": [_attribute("service.name", KEY)]}, list[Record]()

    def line() -> bytes:
        scopes = [{"scope": {"name": KEY}, "spans": spans}]
        return (
            msgspec.json.encode({"resourceSpans": [{"resource": service, "scopeSpans": scopes}]})
            + b"\n"
        )

    for number, verdict in enumerate(verdicts):
        metadata = ids.get(verdict.id, {})
        span = {
            "traceId": trace_id(verdict.id, metadata),
            "spanId": f"{now + number & 0xFFFFFFFFFFFFFFFF:016x}",
            "name": f"evaluate {annotation_name(verdict)}",
            "kind": 1,
            "startTimeUnixNano": str(now),
            "endTimeUnixNano": str(now),
            "attributes": list(_attributes(verdict)),
        }
        parent = metadata.get("span_id")
        if isinstance(parent, str) and _SPAN_ID.fullmatch(parent.lower()):
            span["parentSpanId"] = parent.lower()
        spans.append(span)
        if len(spans) == _SPANS:
            yield line()
            spans = []
    if spans:
        yield line()


def trace_id(id: str, metadata: Mapping[str, Any]) -> str | None:
    """Returns a trajectory's trace: its metadata's `trace_id`, or its id if that is a trace id."""
    return _first(_TRACE_ID, metadata.get("trace_id"), id)


def langsmith(verdicts: Iterable[Verdict], ids: Mapping[str, Mapping[str, Any]]) -> Iterator[bytes]:
    """Yields lines of feedback on runs (see `run_id`), each with the arguments of
    `langsmith.Client.create_feedback` (0.15). `ids` has the metadata of the trajectories by id.
    """
    for verdict in verdicts:
        row = {
            "run_id": run_id(verdict.id, ids.get(verdict.id, {})),
            "key": annotation_name(verdict),
            "score": numeric_score(verdict),
            "value": outcome(verdict),
            "comment": _comment(verdict),
            "feedback_source_type": "model",
            "source_info": _judge(verdict),
            "error": verdict.unscored is not None,
        }
        yield msgspec.json.encode(row) + b"\n"


def run_id(id: str, metadata: Mapping[str, Any]) -> str | None:
    """Returns a trajectory's LangSmith run: its metadata's `run_id`, or its id if that is one."""
    return _first(_RUN_ID, metadata.get("run_id"), id)


def inspect_score(verdict: Verdict) -> Record:
    """Returns a verdict as an Inspect score: C or I.

    An unscored verdict becomes NaN with the reason, which Inspect's metrics ignore.

    (inspect_ai 0.3.285, scorer/_metric.py, `Score.unscored`)
    """
    value = float("nan") if verdict.success is None else "C" if verdict.success else "I"
    metadata = {**_judge(verdict), "score": verdict.score, "unscored": verdict.unscored}
    return {
        "value": value,
        "explanation": verdict.reason,
        "reason": verdict.unscored,
        "metadata": metadata,
    }


def browser_use_judgement(verdict: Verdict) -> Record:
    """Returns a verdict as a judgement of browser-use, which cannot express unscored.

    (0.13, agent/views.py, `JudgementResult`)
    """
    failure = "" if verdict.success else verdict.reason
    return {
        "reasoning": verdict.reason,
        "verdict": verdict.success,
        "failure_reason": failure,
        "impossible_task": False,
        "reached_captcha": False,
    }


def scored(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Returns the last verdict that is not unscored."""
    return next((verdict for verdict in reversed(verdicts) if verdict.success is not None), None)


def _attributes(verdict: Verdict) -> Iterator[Record]:
    yield _attribute("openinference.span.kind", "EVALUATOR")
    prefix = "trace.annotations.0.annotation."
    yield _attribute(f"{prefix}name", annotation_name(verdict))
    yield _attribute(f"{prefix}label", outcome(verdict))
    if (score := numeric_score(verdict)) is not None:
        yield {"key": f"{prefix}score", "value": {"doubleValue": score}}
    yield _attribute(f"{prefix}explanation", _comment(verdict))
    yield _attribute(f"{prefix}annotator_kind", "LLM" if verdict.evaluator.model else "CODE")
    yield _attribute(
        f"{prefix}metadata", json.dumps({**_judge(verdict), "unscored": verdict.unscored})
    )


def _judge(verdict: Verdict) -> Record:
    evaluator = verdict.evaluator
    return {"judge": evaluator.name, "version": evaluator.version, "model": evaluator.model}


def _comment(verdict: Verdict) -> str:
    return (
        verdict.reason
        if verdict.unscored is None
        else f"unscored ({verdict.unscored}): {verdict.reason}"
    )


def _attribute(key: str, text: str) -> Record:
    return {"key": key, "value": {"stringValue": text}}


def _first(form: re.Pattern[str], *values: object) -> str | None:
    return next(
        (v.lower() for v in values if isinstance(v, str) and form.fullmatch(v.lower())), None
    )
