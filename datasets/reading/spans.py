"""Reads OpenTelemetry spans: OTLP JSON, the output of SDKs, and exports of trace stores.

OTLP: `resourceSpans[].scopeSpans[].spans[]`, attributes a list of keys and typed values. Others:
one span per object, with its ids in it or in `context`, and attributes as an object, with dotted
keys or nested. (open-telemetry/opentelemetry-proto, opentelemetry/proto/trace/v1/trace.proto;
opentelemetry-python, sdk/trace/__init__.py; Phoenix's REST interface.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from prill.datasets.reading.records import Record, json_or_none
from prill.errors import InputError

_LISTS = ("spans", "data")
_IDS = (
    ("traceId", "trace_id"),
    ("spanId", "span_id"),
    ("parentSpanId", "parent_id", "parent_span_id", "parentId"),
)
_STARTS = ("startTimeUnixNano", "start_time", "start_timestamp", "startTime")
_MAX_DEPTH = 60


class Span(Record):
    """A span; `start` is in seconds since 1970, `error` the message of an error status."""

    trace: str
    id: str
    parent: str | None
    name: str
    start: float
    attributes: Mapping[str, object]
    events: tuple[tuple[str, Mapping[str, object]], ...] = ()
    error: str | None = None
    service: str | None = None
    annotations: tuple[object, ...] = ()


def is_span(value: object) -> bool:
    """Returns whether a value is a span, or an envelope of OTLP."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("resourceSpans"), list):
        return True
    ids = value.get("context") if isinstance(value.get("context"), dict) else value
    return (
        isinstance(ids, dict)
        and any(key in ids for key in _IDS[1])
        and any(key in ids for key in _IDS[0])
    )


def spans_in(value: object) -> Iterator[Span]:
    """Yields the spans of a document: an envelope, a span, a list of them, or an object with such a
    list. Raises InputError if it is none of these, or a span is broken.
    """
    if isinstance(value, list):
        for one in value:
            yield from spans_in(one)
    elif isinstance(value, dict) and isinstance(value.get("resourceSpans"), list):
        for resource in value["resourceSpans"]:
            entry = _mapping(resource)
            service = _attributes(_mapping(entry.get("resource") or {}).get("attributes")).get(
                "service.name"
            )
            for scope in _list(entry.get("scopeSpans", entry.get("instrumentationLibrarySpans"))):
                for span in _list(_mapping(scope).get("spans")):
                    yield _span(_mapping(span), service)
    elif is_span(value):
        yield _span(_mapping(value), None)
    elif isinstance(value, dict) and any(isinstance(value.get(key), list) for key in _LISTS):
        for key in _LISTS:
            yield from spans_in(value.get(key) or [])
    else:
        raise InputError(
            "expected spans: an object with resourceSpans, or with the ids of a trace and a span"
        )


def nested(attributes: Mapping[str, object], *prefixes: str) -> dict[str, object]:
    """Returns the attributes under dotted keys (`llm.input_messages.0.message.role`) as objects and
    lists.

    Nested values stay unchanged.
    """
    trees: dict[str, object] = {}
    for prefix in prefixes:
        whole_value = value_at(attributes, prefix)
        trees[prefix] = json_or_none(whole_value) if isinstance(whole_value, str) else whole_value
    dotted = tuple(f"{prefix}." for prefix in prefixes)
    for key, value in attributes.items():
        if not key.startswith(dotted):
            continue
        prefix = next(one for one in prefixes if key.startswith(f"{one}."))
        tree = trees[prefix]
        tree = trees[prefix] = {} if tree is None else tree
        _put(tree, key[len(prefix) + 1 :].split("."), value)
    return {prefix: _lists(tree, 0) for prefix, tree in trees.items()}


def value_at(attributes: Mapping[str, object], key: str) -> object:
    """Returns the value at a dotted key, flat or nested; None without it."""
    if key in attributes:
        return attributes[key]
    value: object = attributes
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def find_text(attributes: Mapping[str, object], *keys: str) -> str | None:
    """Returns the first non-empty text among the keys; objects as JSON."""
    for key in keys:
        value = value_at(attributes, key)
        if isinstance(value, dict | list):
            return msgspec.json.encode(value).decode()
        if isinstance(value, str) and value:
            return value
    return None


def _span(record: Mapping[str, object], service: object) -> Span:
    context = {**record, **_mapping(record.get("context") or {})}
    trace, id, parent = (
        next((str(context[key]).removeprefix("0x") for key in keys if context.get(key)), None)
        for keys in _IDS
    )
    if trace is None or id is None:
        raise InputError("a span has no span id or no trace id")
    attributes = _attributes(record.get("attributes"))
    if "span_kind" in record:  # the form of Phoenix
        attributes = {"openinference.span.kind": record["span_kind"], **attributes}
    events = [_mapping(event) for event in _list(record.get("events"))]
    resource = _attributes(_mapping(record.get("resource") or {}).get("attributes"))
    service = service or resource.get("service.name") or record.get("service_name")
    noted = record.get("annotations", record.get("span_annotations"))
    return Span(
        trace=trace,
        id=id,
        parent=parent,
        name=str(record.get("name") or record.get("span_name") or ""),
        start=_seconds(next((record[key] for key in _STARTS if record.get(key) is not None), None)),
        attributes=attributes,
        events=tuple(
            (str(event.get("name") or ""), _attributes(event.get("attributes"))) for event in events
        ),
        error=_error(record),
        service=service if isinstance(service, str) else None,
        annotations=tuple(noted) if isinstance(noted, list) else (),
    )


def _error(record: Mapping[str, object]) -> str | None:
    status = record.get("status")
    status = status if isinstance(status, dict) else {}
    code = status.get("code", status.get("status_code", record.get("status_code")))
    if code not in (2, "2", "STATUS_CODE_ERROR", "ERROR"):
        return None
    message = status.get("message", status.get("description", record.get("status_message")))
    return message if isinstance(message, str) and message else "failed"


def _attributes(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    found: dict[str, object] = {}
    for pair in _list(value):
        pair = _mapping(pair)
        found[str(pair.get("key"))] = _plain(pair.get("value"), 0)
    return found


def _plain(value: object, depth: int) -> object:
    """Converts a typed value of OTLP to a plain one."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for kind, inner in value.items():
        if kind == "intValue":
            try:
                return int(inner) if len(str(inner)) < 30 else None
            except (ValueError, TypeError):
                return None
        if kind == "arrayValue":
            return [_plain(one, depth + 1) for one in _list(_mapping(inner).get("values"))]
        if kind == "kvlistValue":
            pairs = map(_mapping, _list(_mapping(inner).get("values")))
            return {str(pair.get("key")): _plain(pair.get("value"), depth + 1) for pair in pairs}
        return inner  # a text, a number, a boolean, bytes as base64
    return None


def _put(tree: object, path: list[str], value: object) -> None:
    if len(path) > _MAX_DEPTH:
        return
    for part in path[:-1]:
        if not isinstance(tree, dict):
            return
        tree = tree.setdefault(part, {})
    if isinstance(tree, dict):
        tree.setdefault(path[-1], value)


def _lists(tree: object, depth: int) -> object:
    """Converts objects whose keys are numbers to lists."""
    if not isinstance(tree, dict) or depth > _MAX_DEPTH:
        return tree
    if tree and all(isinstance(key, str) and key.isdecimal() and len(key) < 10 for key in tree):
        return [_lists(tree[key], depth + 1) for key in sorted(tree, key=int)]
    return {key: _lists(value, depth + 1) for key, value in tree.items()}


def _seconds(value: object) -> float:
    if isinstance(value, str) and not value.isdecimal():
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            return 0.0
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    try:
        number = float(str(value)) if isinstance(value, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return number / 1e9 if number > 1e14 else number / 1e3 if number > 1e11 else number


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"expected an object in a span, got {type(value).__name__}")
    return value


def _list(value: object) -> list[object]:
    if value is not None and not isinstance(value, list):
        raise InputError(f"expected a list in a span, got {type(value).__name__}")
    return value or []
