"""Writes logs of Anthropic's SDK: its own tool runner with the computer tool, at a scripted server.

    python make_anthropic.py OUT

OUT gets `long.jsonl`, `short.jsonl` and `broken.jsonl`: each request that the SDK sent, with its
response, per line. They send new messages only, in a thread; those of `whole.jsonl` each repeat
the conversation, and `messages.json` is the last of them.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from anthropic.lib.tools import BetaBuiltinFunctionTool
from PIL import Image
from scripted import Handler, Server

USE = tuple[str, dict[str, Any]]


def reply(text: str, *uses: USE, thought: str = "") -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if thought:
        blocks.insert(0, {"type": "thinking", "thinking": thought, "signature": "s"})
    return blocks + [
        {"type": "tool_use", "id": f"toolu_{text}_{i}", "name": name, "input": input}
        for i, (name, input) in enumerate(uses)
    ]


def act(action: str, **more: Any) -> USE:
    return "computer", {"action": action, **more}


LONG = [
    reply("Look", act("screenshot")),
    reply("Click", act("left_click", coordinate=[80, 30]), thought="The field is there."),
    reply("Type", act("type", text="green tea"), act("key", text="Return")),
    reply("Down", act("scroll", coordinate=[80, 60], scroll_direction="down", scroll_amount=3)),
    reply("Closer", act("zoom", region=[0, 0, 40, 40])),
    reply("Buy", act("double_click", coordinate=[40, 90])),
    reply("I bought green tea."),
]
SCRIPTS = {"long": LONG, "whole": LONG, "short": [reply("There is no tea.")], "broken": LONG[:3]}
WHOLE = {"whole": {"thread": False}}


class Noting(Server):
    lines: list[dict[str, Any]]


class Messages(Handler):
    server: Noting

    def do_POST(self) -> None:  # noqa: N802
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.replies:
            said = {"type": "error", "error": {"type": "api_error", "message": "no reply is left"}}
            self.note(400, asked, said)
            return
        blocks = self.server.replies.pop(0)
        calls = blocks[-1]["type"] == "tool_use"
        head = {
            "id": f"msg_{len(self.server.lines)}",
            "type": "message",
            "role": "assistant",
            "model": "scripted-1",
        }
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        usage = {"usage": {"input_tokens": 10, "output_tokens": 2}}
        self.note(200, asked, {**head, "content": blocks, **stop, **usage})

    def note(self, status: int, asked: dict[str, Any], body: dict[str, Any]) -> None:
        self.server.lines.append({"request": asked, "response": body})
        self.answer(status, body)


class Computer(BetaBuiltinFunctionTool):
    """The computer tool of the API, with a screen that only changes its colour."""

    looks = 0

    @property
    def name(self) -> str:
        return "computer"

    def to_dict(self) -> Any:
        size = {"display_width_px": 160, "display_height_px": 120}
        return {"type": "computer_20251124", "name": "computer", **size}

    def call(self, input: Any) -> Any:
        self.looks += 1
        file = io.BytesIO()
        Image.new("RGB", (160, 120), (20 * self.looks, 80, 120)).save(file, "PNG")
        data = base64.b64encode(file.getvalue()).decode()
        source = {"type": "base64", "media_type": "image/png", "data": data}
        text = {"type": "text", "text": f"did {input['action']}"}
        return [text, {"type": "image", "source": source}]


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    server = Noting(Messages)
    client = Anthropic(base_url=server.url, api_key="none", max_retries=0)
    for name, script in SCRIPTS.items():
        server.replies, server.lines = list(script), []
        runner = client.beta.messages.tool_runner(
            model="scripted",
            max_tokens=100,
            system="You shop.",
            messages=[{"role": "user", "content": "Buy green tea"}],
            tools=[Computer()],
            **WHOLE.get(name, {}),
        )
        try:
            runner.until_done()
        except Exception as error:  # noqa: BLE001 - whatever the run ends with
            print(name, error)
        text = "".join(json.dumps(line) + "\n" for line in server.lines)
        (out / f"{name}.jsonl").write_text(text)
        if name == "whole":
            last = server.lines[-1]["request"]
            kept = {key: last[key] for key in ("system", "messages", "tools")}
            (out / "messages.json").write_text(json.dumps(kept, indent=1))


main(Path(sys.argv[1]))
