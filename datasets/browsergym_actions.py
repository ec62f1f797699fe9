"""BrowserGym actions, as agents write them (`fill('147', 'tea')`), read into records."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from prill.datasets.rows import sound
from prill.types import Action

# Verb -> kind, the names of its arguments. Scroll distances stay in the text: they are pixels of an unknown screen.
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "click": ("click", ("target",)),
    "dblclick": ("double_click", ("target",)),
    "hover": ("hover", ("target",)),
    "focus": ("focus", ("target",)),
    "clear": ("clear", ("target",)),
    "fill": ("type", ("target", "value")),
    "select_option": ("select", ("target", "value")),
    "press": ("press", ("target", "value")),
    "keyboard_press": ("press", ("value",)),
    "keyboard_type": ("type", ("value",)),
    "upload_file": ("upload", ("target", "value")),
    "drag_and_drop": ("drag", ("target", "value")),
    "scroll": ("scroll", ()),
    "goto": ("goto", ("value",)),
    "go_back": ("back", ()),
    "go_forward": ("forward", ()),
    "new_tab": ("new_tab", ()),
    "tab_close": ("close_tab", ()),
    "tab_focus": ("focus_tab", ("value",)),
    "noop": ("wait", ()),
    "send_msg_to_user": ("answer", ("value",)),
    "report_infeasible": ("stop", ("value",)),
}
_NAMES = {"bid": "target", "from_bid": "target"}
# Some agents wrote HTML comments behind their call.
_COMMENT = re.compile(r"\s*<!--.*\Z", re.DOTALL)


def parse_action(text: str) -> Action:
    """The action, with `text` as it was written; kind `other` for what is no call of a known verb."""
    call = _call(_COMMENT.sub("", text.strip()))
    if call is None or not isinstance(call.func, ast.Name) or call.func.id not in _VERBS:
        return Action("other", text)
    kind, names = _VERBS[call.func.id]
    given = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        name = _NAMES.get(keyword.arg or "", "value")
        if name in names:
            given.setdefault(name, keyword.value)
    return Action(kind, text, target=_plain(given.get("target")), value=_plain(given.get("value")))


def _call(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _plain(node: ast.expr | None) -> str | None:
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        return sound(str(node.value))
    if isinstance(node, ast.List | ast.Tuple):
        return _joined(node.elts)
    return ast.unparse(node)


def _joined(nodes: Sequence[ast.expr]) -> str:
    return ", ".join(text for text in map(_plain, nodes) if text is not None)
