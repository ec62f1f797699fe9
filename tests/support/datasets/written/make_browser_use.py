"""Writes histories with browser-use itself: its agent, a real Chromium, our page and a scripted
model.

    python make_browser_use.py OUT CHROMIUM

OUT gets `short.json`, `long.json` and `broken.json`, written by `save_history`, and in
`screenshots/` the screenshots of the long one.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

os.environ.update(
    {
        "ANONYMIZED_TELEMETRY": "false",
        "BROWSER_USE_LOGGING_LEVEL": "warning",
        "BROWSER_USE_CLOUD_SYNC": "false",
    }
)

from browser_use import Agent, BrowserProfile
from browser_use.llm.views import ChatInvokeCompletion

PAGE = """<!doctype html><title>Tea shop</title><body style="margin:0">
<h1>Tea shop</h1><input aria-label="Search" style="position:absolute;left:40px;top:80px;width:200px;height:40px">
<select aria-label="Size" style="position:absolute;left:40px;top:140px;width:120px;height:40px">
<option>Small<option>Large</select>
<button style="position:absolute;left:300px;top:80px;width:100px;height:40px" onclick="document.title='Bought'">Buy</button>
<p style="margin-top:1200px">The end</p></body>"""  # noqa: E501


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = PAGE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Scripted:
    """Returns one reply per step. `[Buy]` in an index is replaced by that element's number in the
    page's state.
    """

    _verified_api_keys = True
    model = "scripted"
    provider = "scripted"
    name = model_name = "scripted"

    def __init__(self, replies: list[Any]) -> None:
        self.replies = iter(replies)

    async def ainvoke(self, messages: list[Any], output_format: Any = None, **_: Any) -> Any:
        reply = next(self.replies)
        if isinstance(reply, Exception):
            raise reply
        text = "\n".join(str(message.text) for message in messages)

        def number(name: str) -> int:
            return int(re.findall(rf"\[(\d+)\]<(?:[^\n]*={name}\b|{name}\b)", text)[-1])

        actions = [
            {
                name: {
                    key: number(value[1:]) if key == "index" else value
                    for key, value in values.items()
                }
            }
            for action in reply["action"]
            for name, values in action.items()
        ]
        return ChatInvokeCompletion(
            completion=output_format.model_validate({**reply, "action": actions}), usage=None
        )


def reply(thinking: str, *actions: dict[str, Any]) -> dict[str, Any]:
    return {
        "thinking": thinking,
        "evaluation_previous_goal": "Success - so far",
        "memory": "nothing yet",
        "next_goal": f"next after {thinking}",
        "action": list(actions),
    }


async def record(
    out: Path, name: str, task: str, replies: list[Any], chromium: str, steps: int
) -> None:
    profile = BrowserProfile(
        executable_path=chromium,
        headless=True,
        chromium_sandbox=False,
        enable_default_extensions=False,
        user_data_dir=None,
        viewport={"width": 640, "height": 480},
        window_size={"width": 640, "height": 480},
        no_viewport=False,
    )
    agent = Agent(
        task=task,
        llm=Scripted(replies),
        browser_profile=profile,
        use_judge=False,
        max_failures=1,
        calculate_cost=False,
    )
    await agent.run(max_steps=steps)
    agent.save_history(out / f"{name}.json")
    shots = sorted(Path(agent.agent_directory).rglob("step_*.png"))
    if name == "long":
        (out / "screenshots").mkdir(parents=True, exist_ok=True)
        for shot in shots:
            shutil.copy(shot, out / "screenshots" / shot.name)
    shutil.rmtree(agent.agent_directory, ignore_errors=True)


async def main(out: Path, chromium: str) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    out.mkdir(parents=True, exist_ok=True)
    done = {
        "done": {"text": "The shop is called Tea shop.", "success": True, "files_to_display": []}
    }
    short = [
        reply("open the shop", {"navigate": {"url": url, "new_tab": False}}),
        reply("I can see it", done),
    ]
    long = [
        reply("open the shop", {"navigate": {"url": url, "new_tab": False}}),
        reply(
            "fill the form",
            {"input": {"index": "[Search", "text": "green tea", "clear": True}},
            {"wait": {"seconds": 1}},
        ),
        reply("choose", {"select_dropdown": {"index": "[Size", "text": "Large"}}),
        reply("look down", {"scroll": {"down": True, "pages": 1.0}}),
        reply("look up", {"scroll": {"down": False, "pages": 1.0}}),
        reply("keys", {"send_keys": {"keys": "Tab"}}),
        reply("find", {"find_text": {"text": "The end"}}),
        reply("code", {"evaluate": {"code": "document.title"}}),
        reply("back up", {"scroll": {"down": False, "pages": 2.0}}),
        reply("buy", {"click": {"index": "[button"}}),
        reply(
            "that is it",
            {"done": {"text": "Bought green tea.", "success": False, "files_to_display": []}},
        ),
    ]
    broken = [
        reply("open the shop", {"navigate": {"url": url, "new_tab": False}}),
        *[RuntimeError("the model is gone")] * 9,
    ]
    await record(out, "short", "Name the shop", short, chromium, 4)
    await record(out, "long", "Buy green tea, the large one", long, chromium, 12)
    await record(out, "broken", "Buy black tea", broken, chromium, 4)
    server.shutdown()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
