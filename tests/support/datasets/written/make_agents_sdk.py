"""Writes spans with the OpenAI Agents SDK: its runner, our tools, and its own models at a scripted
server.

    python make_agents_sdk.py OUT

OUT gets `long.jsonl`, `short.jsonl` and `broken.jsonl`: the input of a trace processor, one span
per line, with the chat completions model. It also gets `responses.jsonl` with the responses model,
whose spans hold only ids.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_trace_processors,
)
from agents.tracing import TracingProcessor
from openai import AsyncOpenAI
from scripted import Handler, Server, calls

LONG = [
    calls("Open", ("browser_navigate", {"url": "http://shop.test/"})),
    calls("Type", ("type_text", {"text": "green tea"}), ("press_key", {"key": "Enter"})),
    calls("I bought green tea."),
]
SCRIPTS = {"long": LONG, "short": LONG[2:], "broken": LONG[:2], "responses": LONG}


def response(message: dict[str, Any]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": call["id"],
            "call_id": call["id"],
            "status": "completed",
            **call["function"],
        }
        for call in message.get("tool_calls", ())
    ]
    if not items:
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        items = [
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        ]
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    head = {
        "id": f"resp-{message['content']}",
        "object": "response",
        "created_at": 1,
        "model": "scripted-1",
    }
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}
    return {**head, **more, "output": items, "usage": {**usage, **details}}


class Both(Handler):
    """Answers the responses API too."""

    def completion(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.path.endswith("/responses"):
            return response(message)
        return super().completion(message)


@function_tool
def browser_navigate(url: str) -> str:
    return f"at {url}"


@function_tool
def type_text(text: str) -> str:
    return f"typed {text}"


@function_tool
def press_key(key: str) -> str:
    return f"pressed {key}"


class Lines(TracingProcessor):
    """Keeps the exporters' input."""

    def __init__(self) -> None:
        self.exported: list[dict[str, Any] | None] = []

    def on_trace_start(self, trace: Any) -> None:
        self.exported.append(trace.export())

    def on_trace_end(self, trace: Any) -> None:
        pass

    def on_span_start(self, span: Any) -> None:
        pass

    def on_span_end(self, span: Any) -> None:
        self.exported.append(span.export())

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass


async def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    server = Server(Both)
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    for name, script in SCRIPTS.items():
        lines = Lines()
        set_trace_processors([lines])
        server.replies = list(script)
        kind = OpenAIResponsesModel if name == "responses" else OpenAIChatCompletionsModel
        model = kind(model="scripted", openai_client=client)
        agent = Agent(
            name="Shopper",
            instructions="You shop.",
            model=model,
            tools=[browser_navigate, type_text, press_key],
        )
        try:
            await Runner.run(
                agent,
                "Buy green tea",
                run_config=RunConfig(workflow_name="Shopping", group_id="chat-1"),
            )
        except Exception as error:  # noqa: BLE001 - whatever the run ends with
            print(name, error)
        (out / f"{name}.jsonl").write_text(
            "".join(json.dumps(one) + "\n" for one in lines.exported)
        )


asyncio.run(main(Path(sys.argv[1])))
