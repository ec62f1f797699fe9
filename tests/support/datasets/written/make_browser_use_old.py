"""Writes a history in the action vocabulary of browser-use before 0.2, with the classes of
browser-use 0.1 itself.

    python make_browser_use_old.py OUT

OUT gets `old.json`, written by `save_to_file`. No browser runs: the script makes the steps, and
browser-use's controller validates their actions.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ANONYMIZED_TELEMETRY"] = "false"

from browser_use.agent.views import (
    ActionResult,
    AgentHistory,
    AgentHistoryList,
    AgentOutput,
    StepMetadata,
)
from browser_use.browser.views import BrowserStateHistory, TabInfo
from browser_use.controller.service import Controller
from browser_use.dom.history_tree_processor.view import (
    Coordinates,
    CoordinateSet,
    DOMHistoryElement,
    ViewportInfo,
)
from scripted import picture


def box(x: int, y: int, width: int, height: int) -> CoordinateSet:
    def at(a: int, b: int) -> Coordinates:
        return Coordinates(x=a, y=b)

    return CoordinateSet(
        top_left=at(x, y),
        top_right=at(x + width, y),
        bottom_left=at(x, y + height),
        bottom_right=at(x + width, y + height),
        center=at(x + width // 2, y + height // 2),
        width=width,
        height=height,
    )


def button() -> DOMHistoryElement:
    return DOMHistoryElement(
        tag_name="button",
        xpath="html/body/button",
        highlight_index=7,
        entire_parent_branch_path=["html", "body", "button"],
        attributes={"aria-label": "Buy"},
        css_selector="button",
        page_coordinates=box(300, 580, 100, 40),
        viewport_coordinates=box(300, 80, 100, 40),
        viewport_info=ViewportInfo(scroll_x=0, scroll_y=500, width=800, height=400),
    )


def step(
    number: int,
    goal: str,
    *actions: dict[str, Any],
    results: list[ActionResult],
    element: Any = None,
) -> AgentHistory:
    model = AgentOutput.type_with_custom_actions(Controller().registry.create_action_model())
    brain = {"evaluation_previous_goal": "Unknown", "memory": f"step {number}", "next_goal": goal}
    output = model.model_validate({"current_state": brain, "action": list(actions)})
    state = BrowserStateHistory(
        url="http://shop.test/",
        title="Tea shop",
        tabs=[TabInfo(page_id=0, url="http://shop.test/", title="Tea shop")],
        interacted_element=[element, *[None] * (len(actions) - 1)],
        screenshot=base64.b64encode(picture(80, 40, 0x80)).decode(),
    )
    times = StepMetadata(
        step_start_time=1.7e9 + number,
        step_end_time=1.7e9 + number + 1,
        input_tokens=9,
        step_number=number,
    )
    return AgentHistory(model_output=output, result=results, state=state, metadata=times)


def main(out: Path) -> None:
    done = ActionResult(is_done=True, success=True, extracted_content="Bought.")
    said = ActionResult(extracted_content="Searched")
    AgentHistoryList(
        history=[
            step(
                1,
                "search",
                {"search_google": {"query": "tea"}},
                {"wait": {"seconds": 3}},
                results=[said, said],
            ),
            step(2, "open", {"go_to_url": {"url": "http://shop.test/"}}, results=[said]),
            # The page changed after the first action, so the second was not carried out.
            step(
                3,
                "buy",
                {"click_element_by_index": {"index": 7}},
                {"input_text": {"index": 8, "text": "late"}},
                results=[ActionResult(extracted_content="Clicked")],
                element=button(),
            ),
            step(
                4,
                "look",
                {"switch_tab": {"page_id": 1}},
                {"scroll_up": {"amount": 100}},
                results=[said, said],
            ),
            step(5, "end", {"done": {"text": "Bought.", "success": True}}, results=[done]),
        ]
    ).save_to_file(out / "old.json")


main(Path(sys.argv[1]))
