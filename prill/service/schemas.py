"""The OpenAPI document, generated from the request and response records."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec

from prill.service.answers import JobStatus, Results, ScoreItem, ScoreRequest
from prill.service.contracts import NemoGym, OpenRLHF, Slime
from prill.types import Trajectory

_TRAJECTORY = {
    "id": "tea-1",
    "task": {"goal": "Put a box of tea into the cart", "platform": "web"},
    "steps": [
        {
            "observation": {"text": "button 'Add to cart'"},
            "action": {"kind": "click", "text": "click button 'Add to cart'"},
        }
    ],
    "final": {"text": "Your cart: 1 box of tea"},
}
_EXAMPLES: dict[str, Any] = {
    "ScoreRequest": {"items": [{"trajectory": _TRAJECTORY}]},
    "OpenRLHF": {
        "query": ["What is shown?\nYour cart: 1 box of tea"],
        "prompts": ["What is shown?\n"],
        "labels": [json.dumps(_TRAJECTORY)],
    },
    "Slime": {
        "prompt": "What is shown?",
        "response": "Your cart: 1 box of tea",
        "label": json.dumps(_TRAJECTORY),
    },
    "NemoGym": {
        "responses_create_params": {"input": "Put a box of tea into the cart"},
        "response": {
            "output": [
                {
                    "type": "function_call",
                    "name": "add",
                    "arguments": '{"what": "tea"}',
                    "call_id": "1",
                },
                {
                    "type": "function_call_output",
                    "call_id": "1",
                    "output": "Your cart: 1 box of tea",
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Done."}],
                },
            ]
        },
    },
}
_WORDS = {
    "score": (
        "Judge trajectories",
        "Results are in the order of the items. An invalid item has an error in its result.",
    ),
    "begin_job": (
        "Judge trajectories in the background",
        "The same request; get the result at /v1/jobs/{job_id}.",
    ),
    "job": ("Status of a job", "Its results are included once it is done."),
    "get_reward": (
        "OpenRLHF",
        "Follows the trainer's contract (remote_url). An unscored trajectory is an error "
        "status, never a reward.",
    ),
    "rm": (
        "slime",
        "Follows the trainer's contract (remote_rm): the response is the number; with "
        "?detail=1 a table for its reward key.",
    ),
    "verify": (
        "NeMo-Gym",
        "Follows the trainer's contract: the row is returned with `reward`, or with "
        "`_ng_failure_class` if there is no verdict.",
    ),
    "healthz": ("Whether the process is alive", ""),
    "readyz": ("Whether the judge can be reached", ""),
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
_ANSWERS: dict[str, dict[str, Any]] = {
    "get_reward": {
        "type": "object",
        "properties": {
            "rewards": {"type": "array", "items": {"type": "number"}},
            "scores": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
            "extra_logs": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "number"}},
            },
        },
        "required": ["rewards", "scores", "extra_logs"],
    },
    "rm": {"anyOf": [{"type": "number"}, {"type": "object", "required": ["reward"]}]},
    "verify": {
        "type": "object",
        "properties": {"reward": {"type": "number"}},
        "required": ["reward"],
    },
    "healthz": {"type": "object"},
    "readyz": {"type": "object"},
}
_REFUSED = {
    "400": "Missing or repeated Host header",
    "401": "Missing or wrong token",
    "403": "Request from a page of another site, or for a host name that is not this machine's",
    "408": "The request was received too slowly",
    "413": "The request is too large",
    "415": "Not JSON",
    "422": "The request cannot be judged; the message says where and why",
    "502": "The judge gave no verdict; the code is the reason",
    "503": "Busy, shutting down, or the judge is unavailable; Retry-After says when to retry",
}


@cache
def _schemas() -> dict[str, Any]:
    """Returns the schemas of all records, with references resolved inline."""
    types = (ScoreRequest, ScoreItem, Results, JobStatus, OpenRLHF, Slime, NemoGym, Trajectory)
    _, parts = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    item = parts["ScoreItem"]["properties"]
    item["trajectory"] = {
        "anyOf": [{"$ref": "#/components/schemas/Trajectory"}, {"type": "null"}],
        "default": None,
    }
    # parsed one by one
    parts["ScoreRequest"]["properties"]["items"]["items"] = {
        "$ref": "#/components/schemas/ScoreItem"
    }
    for name, example in _EXAMPLES.items():
        parts[name]["examples"] = [example]
    # A finished turn is a trajectory itself; after their first line, descriptions concern Python.
    for part in parts.values():
        if "description" in part:
            part["description"] = part["description"].partition("\n")[0]
    return dict(parts)


def document(version: str, paths: dict[str, Any]) -> dict[str, Any]:
    """Returns the OpenAPI document; `paths` has operations by path and method."""
    info = {"title": "prill reward service", "version": version}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": _schemas()}}


def describe(
    name: str,
    request: type | None,
    answer: type | None,
    *,
    status: int = 200,
    missing: bool = False,
    busy: bool = False,
) -> dict[str, Any]:
    """Returns an operation for the document."""
    title, summary = _WORDS[name]
    schema = {"$ref": f"#/components/schemas/{answer.__name__}"} if answer else _ANSWERS[name]
    responses: dict[str, Any] = {
        str(status): {
            "description": "The answer",
            "content": {"application/json": {"schema": schema}},
        }
    }
    wanted = (
        ["400", "401", "403"]
        + (list(_REFUSED)[3:] if request else [])
        + (["404"] if missing else [])
    )
    wanted += ["503"] if busy else []
    for code in wanted:
        description = "Unknown job" if code == "404" else _REFUSED[code]
        responses[code] = {
            "description": description,
            "content": {"application/json": {"schema": _ERROR}},
        }
    described: dict[str, Any] = {
        "summary": title,
        "description": summary,
        "operationId": name,
        "responses": responses,
    }
    if name == "job":
        described["parameters"] = [
            {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if request is not None:
        content = {
            "schema": {"$ref": f"#/components/schemas/{request.__name__}"},
            "example": _EXAMPLES[request.__name__],
        }
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described
