"""Writes spans with OpenTelemetry's SDK: our agent calls a scripted server, and the
instrumentations record the calls.

    python make_otel.py OUT

OUT gets OTLP JSON, `openinference-….json` by openinference-instrumentation-openai and
`genai-….json` by opentelemetry-instrumentation-openai-v2, each of a run that is long, short, and
broken off, `hidden-pictures.json` by the former with pictures hidden, `both-pictures.json` with
both conventions, and `spans.jsonl`, as the SDK itself writes the short run.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripted import Handler, Server, calls, png

GOAL = "Buy green tea"


LONG = [
    calls("Open", ("browser_navigate", {"url": "http://shop.test/"})),
    calls("Type", ("type_text", {"text": "green tea"}), ("press_key", {"key": "Enter"})),
    calls("Click", ("computer", {"action": "left_click", "coordinate": [16, 8]})),
    calls("Scroll", ("scroll", {"direction": "down"})),
    calls("I bought green tea."),
]
SCRIPTS = {
    "long": LONG,
    "short": [calls("There is no tea.")],
    "broken": LONG[:2],
    "pictures": [LONG[2], LONG[4]],
}


def run(kind: str, script: str, out: Path) -> None:
    """Runs the agent once in a separate process, because instrumentations apply to a whole
    process.
    """
    from openai import BadRequestError, OpenAI
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shopper"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if kind != "genai":
        from openinference.instrumentation import TraceConfig
        from openinference.instrumentation.openai import OpenAIInstrumentor

        config = TraceConfig(
            hide_input_images=kind == "hidden", enable_genai_semconv=kind == "both"
        )
        OpenAIInstrumentor().instrument(tracer_provider=provider, config=config)
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
    server = Server(Handler)
    server.replies = list(SCRIPTS[script])
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    tracer = provider.get_tracer("shopper")
    agent = (
        {
            "openinference.span.kind": "AGENT",
            "agent.name": "shopper",
            "input.value": GOAL,
            "session.id": "session-1",
        }
        if kind != "genai"
        else {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "shopper",
            "gen_ai.conversation.id": "session-1",
        }
    )
    look = {"type": "image_url", "image_url": {"url": png(1)}}
    messages: list[Any] = [
        {"role": "system", "content": "You are a shopper."},
        {"role": "user", "content": GOAL},
        {"role": "user", "content": [look]},
    ]
    shade = 1
    try:
        with tracer.start_as_current_span("invoke_agent shopper", attributes=agent) as root:
            while True:
                message = (
                    client.chat.completions.create(model="scripted", messages=messages)
                    .choices[0]
                    .message
                )
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or ():
                    done = f"done: {call.function.name}"
                    tool = (
                        {
                            "openinference.span.kind": "TOOL",
                            "tool.name": call.function.name,
                            "tool.id": call.id,
                            "input.value": call.function.arguments,
                            "output.value": done,
                        }
                        if kind != "genai"
                        else {
                            "gen_ai.operation.name": "execute_tool",
                            "gen_ai.tool.name": call.function.name,
                            "gen_ai.tool.call.id": call.id,
                            "gen_ai.tool.call.arguments": call.function.arguments,
                            "gen_ai.tool.call.result": done,
                        }
                    )
                    with tracer.start_as_current_span(
                        f"execute_tool {call.function.name}", attributes=tool
                    ):
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": done})
                if not message.tool_calls:
                    if kind != "genai":
                        root.set_attribute("output.value", message.content)
                    break
                shade += 1
                messages.append(
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": png(shade)}}],
                    }
                )
    except BadRequestError as error:
        print(error)
    spans = exporter.get_finished_spans()
    from google.protobuf.json_format import MessageToDict

    exported = MessageToDict(encode_spans(spans))
    for resource in exported["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                # OTLP's JSON encodes these fields as hexadecimal, unlike Protobuf's JSON encoding
                # of bytes.
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    (out / f"{kind}-{script}.json").write_text(json.dumps(exported))
    if (kind, script) == ("openinference", "short"):
        (out / "spans.jsonl").write_text(
            "".join(span.to_json(indent=None) + "\n" for span in spans)
        )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) == 4:
        run(sys.argv[2], sys.argv[3], folder)
        sys.exit()
    capture = {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }
    for kind in ("openinference", "genai", "hidden", "both"):
        for script in SCRIPTS:
            if (script == "pictures") == (kind in ("hidden", "both")):
                subprocess.run(
                    [sys.executable, __file__, str(folder), kind, script],
                    check=True,
                    env={**os.environ, **capture},
                )
