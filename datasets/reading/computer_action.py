"""Reads calls of `computer_action`, as Harbor's computer-use harness (computer-1) records them in
ATIF.

The action is in `type`.

Coordinates are pixels of the desktop (`source` native_prescaled and anthropic_scaled; `model_x` and
`model_y` are then the model's coordinates in a scaled image, and are skipped), or come from a grid
of 0 to 999 (normalized_completion). There, `model_x` and `model_y` are on the grid and the others
are pixels, once the action was executed; before that, all are on the grid. After `zoom`, the next
image shows only `zoom_region`, and positions on it are fractions of that region. The desktop's size
is not stated; it is that of an image. (Harbor, src/harbor/agents/computer_1.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prill.actions.tool_calls import fraction, parsed, scroll_direction, tool_action
from prill.types import Action, Point

NAME, COMPLETED = "computer_action", "mark_task_complete"
FINAL_TYPES = frozenset({"done", "answer", "terminate"})
_GRID, _SOURCE = (999.0, 999.0), "normalized_completion"
# Internal calls of the harness, which are not actions.
_NOT_SHOWN = frozenset({"type", "source", "model_x", "model_y", "metadata"})
_Box = tuple[float, float, float, float]


class ComputerActions:
    """Reads the calls of one run in order.

    A zoom changes the meaning of the next action's position.
    """

    def __init__(self) -> None:
        self._shown: _Box | None = None

    def __call__(
        self,
        name: str,
        arguments: Mapping[str, object] | str,
        size: tuple[float, float] | None = None,
    ) -> Action:
        """Returns the action of a call; calls of other tools are parsed by `tool_action`."""
        values = parsed(arguments)
        if name == COMPLETED and values is not None:
            return replace(tool_action(name, _given(values)), kind="stop", value=_words(values))
        if name != NAME or values is None or not isinstance(type_ := values.get("type"), str):
            return tool_action(name, arguments, size)
        shown, self._shown = (
            self._shown,
            _box(values.get("zoom_region")) if type_ == "zoom" else None,
        )
        action = tool_action(type_, _given(values))
        return replace(
            action,
            kind="right_click"
            if action.kind == "click" and values.get("button") == "right"
            else action.kind,
            value=_value(type_, values, action),
            point=_place(values, "x", "y", size, shown),
            end_point=_place(values, "end_x", "end_y", size, shown),
        )


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {
        key: value for key, value in values.items() if value is not None and key not in _NOT_SHOWN
    }


def _value(type_: str, values: Mapping[str, object], action: Action) -> str | None:
    if type_ in FINAL_TYPES:
        return _words(values)
    if type_ == "scroll":
        return scroll_direction(values.get("scroll_x"), values.get("scroll_y"))
    # it presses Enter unless the call disables it
    if type_ == "type_text_at" and values.get("press_enter") is not False:
        return f"{action.value or ''}\n"
    return action.value


def _words(values: Mapping[str, object]) -> str | None:
    """Returns the agent's final message."""
    return next(
        (text for key in ("result", "text") if isinstance(text := values.get(key), str) and text),
        None,
    )


def _place(
    values: Mapping[str, object],
    x: str,
    y: str,
    size: tuple[float, float] | None,
    shown: _Box | None,
) -> Point | None:
    horizontal, vertical = values.get(x), values.get(y)
    if values.get("source") == _SOURCE:
        on_grid = (values.get("model_x"), values.get("model_y"))
        if on_grid == (None, None):
            return fraction(horizontal, vertical, _GRID)
        if shown is None and x == "x":
            return fraction(*on_grid, _GRID)
    if shown is None:
        return fraction(horizontal, vertical, size)
    if not isinstance(horizontal, int | float) or not isinstance(vertical, int | float):
        return None
    left, top, right, bottom = shown
    return fraction(horizontal - left, vertical - top, (right - left, bottom - top))


def _box(region: object) -> _Box | None:
    if (
        not isinstance(region, list)
        or len(region) != 4
        or not all(isinstance(edge, int | float) for edge in region)
    ):
        return None
    left, top, right, bottom = map(float, region)
    return (left, top, right, bottom) if left < right and top < bottom else None
