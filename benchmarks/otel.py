"""Measures the reader of OpenTelemetry traces on 10,000 steps:
`python benchmarks/otel.py [steps]`.

Traces of 20 steps each, in both conventions: every call of a model repeats the conversation, as
instrumentations write it, each step with a page's text of 500 characters. Prints processor time and
the peak of memory above the start, each of a fresh process, for a plain parse of the file by
msgspec and by `json`, and for the reader.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

STEPS_OF_A_TRACE = 20
PAGE = "button 'Buy' " * 40


def messages(step: int) -> list[dict[str, Any]]:
    """The conversation before a step."""
    found: list[dict[str, Any]] = [
        {"role": "system", "content": "You shop."},
        {"role": "user", "content": "Buy green tea"},
    ]
    for i in range(step):
        call = {"id": f"c{i}", "function": {"name": "click", "arguments": f'{{"index": {i}}}'}}
        found.append(
            {"role": "assistant", "content": f"Step {i}", "tool_calls": [{"tool_call": call}]}
        )
        found.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"{i} {PAGE}"})
    return found


def flattened(value: Any, key: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v for name, one in value.items() for k, v in flattened(one, f"{key}.{name}").items()
        }
    if isinstance(value, list):
        return {
            k: v for i, one in enumerate(value) for k, v in flattened(one, f"{key}.{i}").items()
        }
    return {key: value}


def parts(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        response = {
            "type": "tool_call_response",
            "id": message["tool_call_id"],
            "response": message["content"],
        }
        return {"role": "tool", "parts": [response]}
    calls = [one["tool_call"] for one in message.get("tool_calls", ())]
    made = [{"type": "tool_call", "id": call["id"], **call["function"]} for call in calls]
    return {
        "role": message["role"],
        "parts": [{"type": "text", "content": message["content"]}, *made],
    }


def span(convention: str, trace: int, step: int) -> dict[str, Any]:
    given, (made,) = messages(step), messages(step + 1)[-2:-1]
    if convention == "openinference":
        held = {
            "openinference.span.kind": "LLM",
            **flattened([{"message": one} for one in given], "llm.input_messages"),
        }
        held |= flattened([{"message": made}], "llm.output_messages")
    else:
        held = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([parts(one) for one in given]),
        }
        held["gen_ai.output.messages"] = json.dumps([parts(made)])
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in held.items()]
    start = (1_700_000_000 + step) * 10**9
    ids = {"traceId": f"{trace:032x}", "spanId": f"{trace * STEPS_OF_A_TRACE + step:016x}"}
    return {**ids, "name": "chat", "startTimeUnixNano": str(start), "attributes": attributes}


def write(path: Path, convention: str, steps: int) -> None:
    """One envelope a trace, in lines, as OpenTelemetry's collector writes its file."""
    with path.open("w") as file:
        for trace in range(steps // STEPS_OF_A_TRACE):
            spans = [span(convention, trace, step) for step in range(STEPS_OF_A_TRACE)]
            file.write(
                json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]})
                + "\n"
            )


def measure(how: str, path: str) -> None:
    """Reads the file in one of the ways, and prints seconds, the peak of memory in MiB, and
    steps.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = 0
    if how == "prill":
        from prill.datasets.formats.opentelemetry import load
        from prill.io.store import BadLine

        start = process_time()
        for item in load(path):
            assert not isinstance(item, BadLine), item
            steps += len(item.steps)
    else:
        import msgspec

        decode = json.loads if how == "json" else msgspec.json.decode
        start = process_time()
        with Path(path).open("rb") as file:
            steps = len([decode(line) for line in file])  # all lines in memory
    seconds = process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([seconds, (after - before) / 1024, steps]))


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
        return
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{'':<16}{'':<10}{'s':>8}{'ratio':>8}{'MiB':>8}{'ratio':>8}")
    with TemporaryDirectory() as folder:
        for convention in ("openinference", "genai"):
            path = Path(folder, f"{convention}.jsonl")
            write(path, convention, steps)
            print(f"{convention}, {path.stat().st_size >> 20} MiB")
            plain: tuple[float, float] | None = None
            for how in ("msgspec", "json", "prill"):
                command = [sys.executable, __file__, "--measure", how, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, env=os.environ)
                seconds, memory, read = json.loads(done.stdout)
                assert how != "prill" or read == steps, read
                plain = plain or (seconds, memory)
                print(
                    f"{'':<16}{how:<10}{seconds:>8.2f}{seconds / plain[0]:>8.1f}{memory:>8.0f}{memory / plain[1]:>8.1f}"  # noqa: E501
                )


if __name__ == "__main__":
    main()
