"""pyautogui code, as desktop agents write it, read into actions."""

from __future__ import annotations

import pytest

from prill.datasets.formats.osworld import parse_pyautogui
from prill.types import Point

SIZE = (200.0, 100.0)


@pytest.mark.parametrize(
    ("code", "kind", "point", "end_point", "value"),
    [
        ("pyautogui.click(50, 50)", "click", (0.25, 0.5), None, None),
        ("pyautogui.click(x=50, y=50, clicks=2)", "double_click", (0.25, 0.5), None, None),
        ("pyautogui.click(50, 50, button='right')", "right_click", (0.25, 0.5), None, None),
        ("pyautogui.doubleClick()", "double_click", None, None, None),
        ("pyautogui.click(201, 50)", "click", None, None, None),
        ("pyautogui.click(x, y)", "click", None, None, None),
        ("pyautogui.moveTo(50, 50)", "hover", (0.25, 0.5), None, None),
        (
            "pyautogui.moveTo(50, 50)\npyautogui.dragTo(100, 100, duration=1)",
            "drag",
            (0.25, 0.5),
            (0.5, 1.0),
            None,
        ),
        ("pyautogui.scroll(-5, x=50, y=50)", "scroll", (0.25, 0.5), None, "down"),
        ("pyautogui.hscroll(5)", "scroll", None, None, "right"),
        ("pyautogui.typewrite('tea', interval=0.1)", "type", None, None, "tea"),
        ("pyautogui.write(message='tea')", "type", None, None, "tea"),
        ("pyautogui.hotkey('ctrl', 'c')", "press", None, None, "ctrl+c"),
        ("pyautogui.press(['tab', 'enter'])", "press", None, None, "tab, enter"),
        ("pyperclip.copy('tea')\npyautogui.hotkey('ctrl', 'v')", "type", None, None, "tea"),
        ("pyperclip.copy('it's')\npyautogui.hotkey('ctrl', 'v')", "type", None, None, "it's"),
        (
            "pyperclip.copy('it's')\npyautogui.hotkey('ctrl', 'v')\npyperclip.copy(' "
            "me')\npyautogui.hotkey('ctrl', 'v')",
            "type",
            None,
            None,
            "it's me",
        ),
        (
            "import pyautogui\nimport time\npyautogui.click(50, 50)\ntime.sleep(1)",
            "click",
            (0.25, 0.5),
            None,
            None,
        ),
        (
            "pyautogui.click(50, 50); pyautogui.write('green '); pyautogui.write('tea'); "
            "pyautogui.press('enter')",
            "type",
            (0.25, 0.5),
            None,
            "green tea",
        ),
        ("pyautogui.click(50, 50)\n=====\nSTEP ?", "click", (0.25, 0.5), None, None),
        (r"pyautogui.write('\ud83d\ude00')", "type", None, None, "\N{GRINNING FACE}"),
        (r"pyautogui.write('\d')", "type", None, None, r"\d"),
        ("time.sleep(2)", "wait", None, None, None),
        ("DONE", "stop", None, None, None),
        ("FAIL\n=====", "stop", None, None, None),
        ("WAIT", "wait", None, None, None),
        ("# Unrecognized action type: call_user", "other", None, None, None),
        ("os.system('rm x')", "other", None, None, None),
        ("pyautogui.click(", "other", None, None, None),
        ("", "other", None, None, None),
    ],
)
def test_code_becomes_one_action(
    code: str, kind: str, point: Point | None, end_point: Point | None, value: str | None
) -> None:
    action = parse_pyautogui(code, SIZE)
    assert (action.kind, action.point, action.end_point, action.value) == (
        kind,
        point,
        end_point,
        value,
    )
    assert action.text == code
