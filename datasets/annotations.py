"""Verdicts as OpenInference spans, LangSmith feedback and Inspect scores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from prill.types import Verdict

Record = dict[str, Any]
Judged = dict[str, dict[str, Verdict]]  # verdicts by id, and by the name of the judge's annotations
_PRILL = "prill"
_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def annotation_name(verdict: Verdict) -> str:
    """Returns the name of a judge's annotations, which separates them from those of other tools."""
    return f"{_PRILL}/{verdict.evaluator.name}"


def trace_id(id: str, metadata: Mapping[str, Any]) -> str | None:
    """Returns a trajectory's trace: its metadata's `trace_id`, or its id if that is a trace id."""
    return _first(_TRACE_ID, metadata.get("trace_id"), id)


def openinference(
    verdicts: Iterable[Verdict],
    traces: Mapping[str, str | None],
    metadata: Mapping[str, Mapping[str, Any]],
    *,
    now: int,
) -> Iterator[str]:
    """Yields lines of OTLP JSON: for each verdict an EVALUATOR span in the judged trace, with an
    annotation. Exported spans cannot be changed, but every collector accepts additional ones.
    (openinference-semantic-conventions 0.1.42, `SpanAttributes.TRACE_ANNOTATIONS`,
    `AnnotationAttributes`).

    Args:
        verdicts: The verdicts.
        traces: The trace of each trajectory (see `trace_id`).
        metadata: The metadata of the trajectories by their id.
        now: The time of the spans, in nanoseconds since 1970.
    """
    resource, scope = {"attributes": [_attribute("service.name", _PRILL)]}, {"name": _PRILL}
    for number, verdict in enumerate(verdicts):
        span = {
            "traceId": traces[verdict.id],
            "spanId": f"{now + number & 0xFFFFFFFFFFFFFFFF:016x}",
            "name": f"evaluate {annotation_name(verdict)}",
            "kind": 1,
            "startTimeUnixNano": str(now),
            "endTimeUnixNano": str(now),
            "attributes": list(_attributes(verdict)),
        }
        if parent := _first(_SPAN_ID, metadata.get(verdict.id, {}).get("span_id")):
            span["parentSpanId"] = parent
        scopes = [{"scope": scope, "spans": [span]}]
        yield _line({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]})


def _attributes(verdict: Verdict) -> Iterator[Record]:
    prefix = "trace.annotations.0.annotation."
    yield _attribute("openinference.span.kind", "EVALUATOR")
    yield _attribute(f"{prefix}name", annotation_name(verdict))
    yield _attribute(f"{prefix}label", _outcome(verdict))
    if (score := _score(verdict)) is not None:
        yield {"key": f"{prefix}score", "value": {"doubleValue": score}}
    yield _attribute(f"{prefix}explanation", _comment(verdict))
    yield _attribute(f"{prefix}annotator_kind", "LLM" if verdict.evaluator.model else "CODE")
    yield _attribute(
        f"{prefix}metadata", json.dumps({**_judge(verdict), "unscored": verdict.unscored})
    )


def _attribute(key: str, text: str) -> Record:
    return {"key": key, "value": {"stringValue": text}}


def run_id(id: str, metadata: Mapping[str, Any]) -> str | None:
    """Returns a trajectory's LangSmith run: its metadata's `run_id`, or its id if that is one."""
    return _first(_RUN_ID, metadata.get("run_id"), id)


def langsmith(verdicts: Iterable[Verdict], runs: Mapping[str, str | None]) -> Iterator[str]:
    """Yields lines of feedback on runs (see `run_id`), each with the arguments of
    `langsmith.Client.create_feedback` (0.15).
    """
    for verdict in verdicts:
        yield _line(
            {
                "run_id": runs[verdict.id],
                "key": annotation_name(verdict),
                "score": _score(verdict),
                "value": _outcome(verdict),
                "comment": _comment(verdict),
                "feedback_source_type": "model",
                "source_info": _judge(verdict),
                "error": verdict.unscored is not None,
            }
        )


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


def _outcome(verdict: Verdict) -> str:
    return "unscored" if verdict.success is None else "success" if verdict.success else "failure"


def _score(verdict: Verdict) -> float | None:
    """Returns the judge's score, or else 1 for success and 0 for failure; None if unscored."""
    if verdict.success is None:
        return None
    return verdict.score if verdict.score is not None else float(verdict.success)


def _judge(verdict: Verdict) -> Record:
    evaluator = verdict.evaluator
    return {"judge": evaluator.name, "version": evaluator.version, "model": evaluator.model}


def _comment(verdict: Verdict) -> str:
    return (
        verdict.reason
        if verdict.unscored is None
        else f"unscored ({verdict.unscored}): {verdict.reason}"
    )


def _line(record: Record) -> str:
    return msgspec.json.encode(record).decode() + "\n"


def _first(form: re.Pattern[str], *values: object) -> str | None:
    return next(
        (v.lower() for v in values if isinstance(v, str) and form.fullmatch(v.lower())), None
    )
