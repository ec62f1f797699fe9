"""Writes runs with LangSmith's own run trees: LangChain's messages, and an OpenAI client that
LangSmith wraps.

    python make_langsmith.py OUT

OUT gets `langchain.json`, the root of a LangGraph agent with a scripted model, `langchain.jsonl`,
all its runs, and `openai-long.jsonl`, `openai-short.jsonl` and `openai-broken.jsonl`, a run a line
as the client sends them, of a loop of ours around a scripted server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"

import langsmith
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.tracers.langchain import LangChainTracer
from langgraph.prebuilt import create_react_agent
from langsmith._internal._serde import dumps_json
from langsmith.wrappers import wrap_openai
from make_otel import LONG, SCRIPTS
from openai import BadRequestError, OpenAI
from scripted import Handler, Server, png


class Scripted(FakeMessagesListChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


@tool
def browser_navigate(url: str) -> Any:
    """Opens a page."""
    return [
        {"type": "text", "text": f"at {url}"},
        {"type": "image_url", "image_url": {"url": png(3)}},
    ]


@tool
def type_text(text: str) -> str:
    """Types."""
    return f"typed {text}"


class Collector(LangChainTracer):
    """Keeps the runs instead of sending them."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.roots: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        self.roots.append(run)

    def _persist_run_single(self, run: Any) -> None:
        pass

    def _update_run_single(self, run: Any) -> None:
        pass


def langchain(out: Path) -> None:
    replies = [
        AIMessage(
            "Open",
            tool_calls=[
                {"id": "1", "name": "browser_navigate", "args": {"url": "http://shop.test/"}}
            ],
        ),
        AIMessage(
            "Type", tool_calls=[{"id": "2", "name": "type_text", "args": {"text": "green tea"}}]
        ),
        AIMessage("I bought green tea."),
    ]
    collector = Collector(
        client=langsmith.Client(
            api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False
        )
    )
    agent = create_react_agent(
        Scripted(responses=replies), [browser_navigate, type_text], prompt="You shop."
    )
    agent.invoke(
        {"messages": [("user", "Buy green tea")]},
        config={"callbacks": [collector], "run_name": "shopper"},
    )
    (root,) = collector.roots
    (out / "langchain.jsonl").write_text(
        "".join(dumps_json(one).decode() + "\n" for one in dicts(root))
    )
    (out / "langchain.json").write_text(
        root.model_dump_json(exclude={"parent_run", "ls_client", "client"})
    )


def dicts(run: Any) -> list[dict[str, Any]]:
    found = [run._get_dicts_safe()]
    for child in run.child_runs:
        found += dicts(child)
    return found


def openai(out: Path, name: str, script: list[Any], server: Server) -> None:
    server.replies = list(script)
    client = wrap_openai(OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0))
    roots: list[Any] = []

    @langsmith.traceable(run_type="tool", name="browser")
    def act(name: str, arguments: str) -> str:
        return f"done: {name}"

    @langsmith.traceable(run_type="chain", name="shopper")
    def shop(question: str) -> str:
        roots.append(langsmith.get_current_run_tree())
        look = {"type": "image_url", "image_url": {"url": png(1)}}
        messages: list[Any] = [
            {"role": "user", "content": [{"type": "text", "text": question}, look]}
        ]
        while True:
            message = (
                client.chat.completions.create(model="scripted", messages=list(messages))
                .choices[0]
                .message
            )
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                result = act(call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not message.tool_calls:
                return message.content or ""

    with langsmith.tracing_context(enabled="local"):
        try:
            shop("Buy green tea")
        except BadRequestError as error:
            print(error)
    (out / f"openai-{name}.jsonl").write_text(
        "".join(dumps_json(one).decode() + "\n" for one in dicts(roots[0]))
    )


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    langchain(out)
    server = Server(Handler)
    for name, script in {
        "long": LONG,
        "short": SCRIPTS["short"],
        "broken": SCRIPTS["broken"],
    }.items():
        openai(out, name, script, server)


main(Path(sys.argv[1]))
