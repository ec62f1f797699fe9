"""The actions that a model writes as Python: read by a small interpreter of our own, never executed as Python.

A block has calls of `agent`, and plain Python around them: assignments, arithmetic, `for`, `if`, f-strings, subscripts, some
functions. It gives one call after another, so that each can be carried out before the next is worked out. Whatever else
stands in it makes the block invalid.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prill.models.replies import excerpt

# What each method takes; see prompts/system.md for what they do.
METHODS: Mapping[str, str] = {
    "type": "characters",
    "click_xpath": "xpath",
    "press": "key",
    "click_option": "xpath",
    "movemouse": "xpath",
}
MOST_CHARS = 8000  # of a block
MOST_WORK = 5000  # expressions and statements that are worked out
MOST_CALLS = 200
MOST_LENGTH = 2000  # of a text or a list
MOST_NUMBER = 10**12
_FENCE = re.compile(r"```[ \t]*(?:[A-Za-z0-9_+-]*[ \t]*\r?\n)?(.*?)```", re.DOTALL)
_CONVERSIONS: Mapping[int, Callable[[Any], Any]] = {-1: lambda value: value, ord("s"): str, ord("r"): repr, ord("a"): ascii}
_FORMAT = re.compile(r"0?\d{0,2}(?:\.\d)?[dfsx]?")


class BadBlock(ValueError):
    """The block is no Python that can be read here: the turn ends."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the agent: `agent.press("enter")`."""

    method: str
    argument: str

    def __str__(self) -> str:
        plain = self.argument.isprintable() and not {'"', "\\"} & set(self.argument)
        quoted = f'"{self.argument}"' if plain else repr(self.argument)
        return f"agent.{self.method}({quoted})"


def first_block(reply: str) -> str:
    """The first fenced block of a reply, without the word for its language; empty where there is none."""
    match = _FENCE.search(reply.rpartition("</think>")[2])
    return match[1].strip("\r\n") if match else ""


def calls(block: str) -> Iterator[Call]:
    """The calls of the block, each worked out when it is asked for. Raises BadBlock, also after some of them."""
    if len(block) > MOST_CHARS:
        raise BadBlock(f"the block has {len(block)} characters; {MOST_CHARS} are allowed")
    try:
        tree = ast.parse(block)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadBlock(f"the block is no Python: {error}") from None
    return _Run().body(tree.body)


def check(block: str) -> None:
    """Raises BadBlock for a block that is not valid before anything is carried out, or has no end within the limits."""
    for _ in calls(block):
        pass


class _Run:
    """One run of a block: its variables, and how much it has done."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}
        self._work = self._calls = 0

    def body(self, statements: list[ast.stmt]) -> Iterator[Call]:
        try:
            for statement in statements:
                yield from self._statement(statement)
        except (TypeError, ValueError, IndexError, KeyError, ArithmeticError, RecursionError, AttributeError) as error:
            if isinstance(error, BadBlock):
                raise
            raise BadBlock(f"the block fails: {type(error).__name__}: {error}") from None

    def _spend(self, node: ast.AST) -> None:
        self._work += 1
        if self._work > MOST_WORK:
            raise BadBlock(f"the block works on after {MOST_WORK} operations")

    def _statement(self, node: ast.stmt) -> Iterator[Call]:
        self._spend(node)
        if isinstance(node, ast.Expr):
            if (call := self._agent_call(node.value)) is not None:
                self._calls += 1
                if self._calls > MOST_CALLS:
                    raise BadBlock(f"the block calls the agent more than {MOST_CALLS} times")
                yield call
            else:
                self._value(node.value)
        elif isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._assign(node.target, self._operate(node.op, self._named(node.target.id), self._value(node.value)))
        elif isinstance(node, ast.For) and not node.orelse:
            for value in self._sequence(self._value(node.iter)):
                self._assign(node.target, value)
                for inner in node.body:
                    yield from self._statement(inner)
        elif isinstance(node, ast.If):
            for inner in node.body if self._value(node.test) else node.orelse:
                yield from self._statement(inner)
        elif not isinstance(node, ast.Pass):
            raise _unknown(node)

    def _agent_call(self, node: ast.expr) -> Call | None:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "agent"
        ):
            return None
        method = node.func.attr
        if method not in METHODS:
            raise BadBlock(f"agent has no {method}(); it has {', '.join(METHODS)}")
        given = [*node.args, *(word.value for word in node.keywords if word.arg == METHODS[method])]
        if len(given) != 1 or len(node.args) + len(node.keywords) != 1:
            raise BadBlock(f"agent.{method}() takes one text")
        argument = str(self._value(given[0]))
        if not argument.isascii() and argument.encode("utf-8", "replace").decode() != argument:
            raise BadBlock("half of a pair of surrogates is no text")  # what is recorded could not be written
        return Call(method, argument)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name) and target.id != "agent" and target.id not in _FUNCTIONS:
            self._names[target.id] = value
        elif isinstance(target, ast.Tuple):
            values = list(self._sequence(value))
            if len(values) != len(target.elts):
                raise BadBlock(f"{len(values)} values for {len(target.elts)} names")
            for inner, one in zip(target.elts, values, strict=True):
                self._assign(inner, one)
        else:
            raise _unknown(target)

    def _named(self, name: str) -> Any:
        if name not in self._names:
            raise BadBlock(f"the block uses {name!r}, which it has not set")
        return self._names[name]

    def _value(self, node: ast.expr) -> Any:
        self._spend(node)
        for kind, work in _EXPRESSIONS.items():
            if isinstance(node, kind):
                return _bounded(work(self, node))
        raise _unknown(node)

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, str | int | float | bool | None):
            raise _unknown(node)
        return node.value

    def _several(self, node: ast.List | ast.Tuple) -> Any:
        values = [_shallow(self._value(one)) for one in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)

    def _table(self, node: ast.Dict) -> Any:
        keys = [self._value(key) for key in node.keys if key is not None]
        return dict(zip(keys, (_shallow(self._value(value)) for value in node.values), strict=True))

    def _operate(self, operation: ast.operator, left: Any, right: Any) -> Any:
        work = _OPERATIONS.get(type(operation))
        if work is None:
            raise _unknown(operation)
        if isinstance(operation, ast.Mult):
            for times, what in ((left, right), (right, left)):
                if isinstance(what, str | list | tuple) and len(what) * max(0, times) > MOST_LENGTH:
                    raise BadBlock(f"a text or list of more than {MOST_LENGTH} parts")
        if isinstance(operation, ast.Mod) and isinstance(left, str):  # "%1000000d" would be as long as it says
            raise BadBlock("texts are put together by f-strings or +, not by %")
        return _bounded(work(left, right))

    def _compare(self, node: ast.Compare) -> bool:
        left = self._value(node.left)
        for operation, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other)
            if (work := _COMPARISONS.get(type(operation))) is None:
                raise _unknown(operation)
            if not work(left, right):
                return False
            left = right
        return True

    def _any_or_all(self, node: ast.BoolOp) -> Any:
        stop, value = isinstance(node.op, ast.Or), None
        for one in node.values:
            value = self._value(one)
            if bool(value) is stop:
                return value
        return value

    def _turned(self, node: ast.UnaryOp) -> Any:
        value = self._value(node.operand)
        return not value if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else _same(value)

    def _choice(self, node: ast.IfExp) -> Any:
        return self._value(node.body if self._value(node.test) else node.orelse)

    def _part(self, node: ast.Subscript) -> Any:
        whole = self._value(node.value)
        if isinstance(node.slice, ast.Slice):
            edges = (node.slice.lower, node.slice.upper, node.slice.step)
            return whole[slice(*(None if edge is None else self._value(edge) for edge in edges))]
        return whole[self._value(node.slice)]

    def _text(self, node: ast.JoinedStr) -> str:
        pieces = list[str]()
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                form = "" if part.format_spec is None else str(self._value(part.format_spec))
                if not _FORMAT.fullmatch(form):
                    raise BadBlock(f"the format {form!r} is not known here")
                value = _plain(self._value(part.value))
                pieces.append(format(_CONVERSIONS[part.conversion](value), form))
            else:
                pieces.append(str(self._value(part)))
        return "".join(pieces)

    def _called(self, node: ast.Call) -> Any:
        if node.keywords:
            raise _unknown(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            return _FUNCTIONS[node.func.id](*map(self._value, node.args))
        if isinstance(node.func, ast.Attribute):
            of = self._value(node.func.value)
            if isinstance(of, str) and node.func.attr in _TEXT_METHODS:
                return getattr(of, node.func.attr)(*map(self._value, node.args))
            if isinstance(of, list) and node.func.attr == "append" and len(node.args) == 1:
                return _bounded(of).append(_shallow(self._value(node.args[0])))
        raise _unknown(node)

    def _sequence(self, value: Any) -> Any:
        if not isinstance(value, str | list | tuple | range | dict):
            raise BadBlock(f"a {type(value).__name__} cannot be gone through")
        return list(value)


def _unknown(node: ast.AST) -> BadBlock:
    try:
        words = excerpt(ast.unparse(node)) if isinstance(node, ast.expr | ast.stmt) else type(node).__name__
    except (AttributeError, ValueError, RecursionError):
        words = type(node).__name__
    return BadBlock(f"the block has something that is not allowed in it: {words}")


def _same(value: Any) -> Any:
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple | range | dict) and len(value) > MOST_LENGTH:
        raise BadBlock(f"a text or list of more than {MOST_LENGTH} parts")
    if isinstance(value, int | float) and abs(value) > MOST_NUMBER:
        raise BadBlock(f"a number above {MOST_NUMBER:g}")
    return value


def _shallow(value: Any) -> Any:
    """A part of a list: lists in lists in lists could be made that never end to be compared."""
    if isinstance(value, list | tuple | dict) and any(isinstance(one, list | tuple | dict) for one in value):
        raise BadBlock("lists are nested too deep")
    return value


def _plain(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise BadBlock(f"a {type(value).__name__} is no text")
    return value


def _range(*edges: int) -> range:
    whole: range = _bounded(range(*edges))
    return whole


_TEXT_METHODS = {
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "split",
    "join",
    "startswith",
    "endswith",
    "index",
    "find",
    "count",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "str": lambda value: str(_plain(value)),
    "int": lambda value: int(value),
    "range": _range,
    "ord": ord,
    "chr": chr,
    "sorted": sorted,
    "sum": lambda values: sum(values),
    "min": min,
    "max": max,
    "abs": abs,
}
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_EXPRESSIONS: dict[type[ast.expr], Callable[[_Run, Any], Any]] = {
    ast.Constant: _Run._constant,
    ast.Name: lambda run, node: run._named(node.id),
    ast.List: _Run._several,
    ast.Tuple: _Run._several,
    ast.Dict: _Run._table,
    ast.BinOp: lambda run, node: run._operate(node.op, run._value(node.left), run._value(node.right)),
    ast.Compare: _Run._compare,
    ast.BoolOp: _Run._any_or_all,
    ast.UnaryOp: _Run._turned,
    ast.IfExp: _Run._choice,
    ast.Subscript: _Run._part,
    ast.JoinedStr: _Run._text,
    ast.Call: _Run._called,
}
