"""Items of OpenAI's Responses as the vendor's own types write them: what was done reaches the
judge.
"""

import json
from typing import Any

import pytest

from prill.service.contracts import NemoGym
from prill.service.request_parsing import RequestParser
from prill.types import Action, Trajectory
from tests.integration.service.test_bounds import noise

responses = pytest.importorskip(
    "openai.types.responses", reason="openai is not installed: pip install openai"
)

PICTURE = f"data:image/png;base64,{noise(10)}"
# Every kind of action: as it is sent, and what becomes of it (kind, value, point, end point).
ACTIONS: dict[str, tuple[dict[str, Any], Action]] = {
    "click": ({"button": "left", "x": 1, "y": 2}, Action("click", point=(0.1, 0.2))),
    "click with a key": (
        {"button": "right", "x": 1, "y": 2, "keys": ["CTRL"]},
        Action("right_click", point=(0.1, 0.2)),
    ),
    "double_click": ({"x": 5, "y": 5, "keys": None}, Action("double_click", point=(0.5, 0.5))),
    "drag": (
        {"path": [{"x": 0, "y": 1}, {"x": 4, "y": 4}, {"x": 9, "y": 9}]},
        Action("drag", point=(0.0, 0.1), end_point=(0.9, 0.9)),
    ),
    "keypress": ({"keys": ["CTRL", "A"]}, Action("press", value="CTRL+A")),
    "move": ({"x": 3, "y": 3}, Action("hover", point=(0.3, 0.3))),
    "screenshot": ({}, Action("screenshot")),
    "scroll": (
        {"x": 1, "y": 1, "scroll_x": 0, "scroll_y": 300},
        Action("scroll", value="down", point=(0.1, 0.1)),
    ),
    "type": ({"text": "green tea"}, Action("type", value="green tea")),
    "wait": ({}, Action("wait")),
}


def call(**more: Any) -> dict[str, Any]:
    """An item as the installed library reads and writes it."""
    kept = {
        "id": "cu",
        "call_id": "c",
        "pending_safety_checks": [],
        "status": "completed",
        "type": "computer_call",
    }
    written: dict[str, Any] = responses.ResponseComputerToolCall.model_validate(
        {**kept, **more}
    ).model_dump()
    return written


def made(*items: dict[str, Any]) -> Trajectory:
    """The trajectory of a response that was shown a picture of 10x10 pixels first."""
    shown = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": PICTURE},
    }
    asked = {"input": "Buy green tea"}
    return NemoGym(asked, {"output": [shown, *items]}).made(RequestParser())


def sent(name: str) -> dict[str, Any]:
    return {"type": name.partition(" ")[0], **ACTIONS[name][0]}


def check(done: Action, name: str) -> None:
    fields, wanted = ACTIONS[name]
    assert (done.kind, done.value, done.point, done.end_point) == (
        wanted.kind,
        wanted.value,
        wanted.point,
        wanted.end_point,
    )
    assert done.text.startswith(f"{name.partition(' ')[0]}(")
    for key, value in fields.items():
        assert (f"{key}={json.dumps(value)}" in done.text) == (value is not None)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("form", ["actions", "action"])
def test_every_action_reaches_the_judge(form: str, name: str) -> None:
    """In the list of today, and alone as in the preview; None for the other, as the library writes
    it.
    """
    action = sent(name)
    trajectory = made(call(**{form: [action] if form == "actions" else action}))
    assert len(trajectory.steps) == 1 and trajectory.task.platform == "web"
    check(trajectory.steps[0].action, name)
    assert trajectory.steps[0].observation.screenshot


def test_a_batch_is_a_step_an_action() -> None:
    """The first has what was seen and thought; what follows was done without another look."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I search."}]}
    trajectory = made(
        thought, call(actions=[sent(name) for name in ACTIONS]), call(action=sent("wait"))
    )
    assert len(trajectory.steps) == len(ACTIONS) + 1
    for step, name in zip(trajectory.steps, [*ACTIONS, "wait"], strict=True):
        check(step.action, name)
    assert [bool(step.observation.screenshot) for step in trajectory.steps] == [True] + [
        False
    ] * len(ACTIONS)
    assert [step.thought for step in trajectory.steps] == ["I search."] + [None] * len(ACTIONS)


def test_the_library_has_no_other_actions() -> None:
    """A kind that a new version brings shows up here."""
    from typing import get_args

    from openai.types.responses.computer_action import ComputerAction
    from openai.types.responses.response_computer_tool_call import Action as PreviewAction

    for union in (ComputerAction, PreviewAction):
        kinds = {
            get_args(kind.model_fields["type"].annotation)[0]
            for kind in get_args(get_args(union)[0])
        }
        assert kinds == {name.partition(" ")[0] for name in ACTIONS}


@pytest.mark.parametrize("actions", [None, [], [5, None], "click", {"type": "click"}])
def test_odd_lists_of_actions_break_nothing(actions: Any) -> None:
    [step] = made({"type": "computer_call", "actions": actions}).steps
    assert step.action.kind == "other"


# Calls of functions that browsers' servers offer (Playwright's MCP, browser-use), as models write
# them: (name, arguments, kind, value, target, point).
CALLS: list[tuple[str, Any, str, str | None, str | None, Any]] = [
    ("browser_navigate", '{"url": "https://a.example"}', "goto", "https://a.example", None, None),
    (
        "browser_click",
        '{"element": "button \'Save\'", "ref": "e7"}',
        "click",
        None,
        "button 'Save'",
        None,
    ),
    ("browser_type", {"ref": "e8", "text": "green tea"}, "type", "green tea", "e8", None),
    ("mcp__playwright__browser_navigate_back", "", "back", None, None, None),
    ("click_at", '{"x": 1, "y": 2}', "click", None, None, (0.1, 0.2)),
    ("done", '{"text": "It costs $5"}', "stop", "It costs $5", None, None),
    ("add_to_cart", '{"id": 5}', "other", None, None, None),
    ("click", "{broken", "click", None, None, None),
    ("click", None, "click", None, None, None),
]


@pytest.mark.parametrize(("name", "arguments", "kind", "value", "target", "point"), CALLS)
def test_function_calls_are_read_as_actions(
    name: str, arguments: Any, kind: str, value: str | None, target: str | None, point: Any
) -> None:
    call = {"type": "function_call", "call_id": "f", "name": name, "arguments": arguments}
    [step] = made(call).steps
    done = step.action
    assert (done.kind, done.value, done.target, done.point) == (kind, value, target, point)
    assert done.text.startswith(f"{name}(")


@pytest.mark.parametrize("name", [*ACTIONS, *dict.fromkeys(call[0] for call in CALLS)])
def test_service_and_converter_read_the_same(name: str, tmp_path: Any) -> None:
    """A run that is sent to the service, and its file: the same actions."""
    from prill.datasets.formats.openai_responses import load

    item = (
        call(actions=[sent(name)])
        if name in ACTIONS
        else {
            "type": "function_call",
            "call_id": "f",
            **dict(
                zip(("name", "arguments"), next(c for c in CALLS if c[0] == name), strict=False)
            ),
        }
    )
    shown = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": PICTURE},
    }
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"input": "Buy green tea", "output": [shown, item]}))
    [read] = load(file)
    assert isinstance(read, Trajectory)
    [served] = made(item).steps
    if name == "screenshot":
        assert not read.steps, "what only looks is no step of a converted run"
    else:
        assert [step.action for step in read.steps] == [served.action]
