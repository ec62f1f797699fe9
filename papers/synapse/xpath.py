"""XPath 1.0 as agents write it, evaluated on the page that they were shown: the elements it selects, in the page's order.

A browser's own `document.evaluate` selects the same (a test compares them). Left out: namespaces, variables, and functions that
take ids or languages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prill.papers.synapse.html import Element

_MOST_CHARS, _MOST_DEPTH = 2000, 40  # an expression that is longer, or more nested, is no agent's
_MOST_WORK = 200_000  # nodes looked at: `//*[//*[//*]]` looks at the cube of what the page has


class BadXPath(ValueError):
    """What was written is no XPath that can be read here."""


def find(page: Element, xpath: str) -> list[Element]:
    """The elements that the expression selects, in the page's order. Raises BadXPath, also for one that takes too long."""
    try:
        value = _compiled(xpath)(_Context(page, 1, 1))
    except (ArithmeticError, RecursionError) as error:
        raise BadXPath(f"{xpath!r} cannot be worked out: {error}") from None
    if not isinstance(value, list):
        raise BadXPath(f"{xpath!r} selects no elements")
    return [node for node in _ordered(value) if isinstance(node, Element) and node.tag]


@dataclass(frozen=True)
class _Leaf:
    """An attribute or a text, as a node."""

    name: str
    value: str
    parent: Element
    place: int


_Node = Element | _Leaf
_Value = list[_Node] | str | float | bool


@dataclass(frozen=True)
class _Context:
    node: _Node
    position: int
    size: int


_Expression = Callable[[_Context], _Value]
_TOKEN = re.compile(
    r"""\s*("[^"]*"|'[^']*'|\d+(?:\.\d+)?|\.\d+|\.\.|//|::|!=|<=|>=|[@/\[\](),|=<>+*.\-]|[A-Za-z_][\w-]*(?:\.[\w-]+)*)"""
)
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_OPERATORS = ({"or"}, {"and"}, {"=", "!="}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "div", "mod"})
_WORDS = {"or", "and", "div", "mod", "*"}
_NODE_TYPES = {"text", "node", "comment"}


def _compiled(xpath: str) -> _Expression:
    if len(xpath) > _MOST_CHARS:
        raise BadXPath("the XPath is too long")
    parser = _Parser(_tokens(xpath), xpath)
    expression = parser.binary(0)
    if parser.here:
        raise BadXPath(f"{xpath!r} cannot be read at {parser.here!r}")
    return expression


def _tokens(xpath: str) -> list[str]:
    found, at = list[str](), 0
    text = xpath.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadXPath(f"{xpath!r} cannot be read at {text[at : at + 10]!r}")
        found.append(match[1])
        at = match.end()
    return found


class _Parser:
    """Recursive descent over the grammar of XPath 1.0; each method gives what evaluates its part."""

    def __init__(self, tokens: Sequence[str], whole: str) -> None:
        self._tokens, self._at, self._whole, self._depth = [*tokens, "", ""], 0, whole, 0
        self._work = 0

    @property
    def here(self) -> str:
        return self._tokens[self._at]

    @property
    def _next(self) -> str:
        return self._tokens[self._at + 1] if self.here else ""

    def _take(self, *wanted: str) -> str:
        token = self.here
        if not token or (wanted and token not in wanted):
            raise BadXPath(f"{self._whole!r} cannot be read at {token or 'its end'!r}")
        self._at += 1
        return token

    def _spend(self, nodes: int) -> None:
        self._work += nodes
        if self._work > _MOST_WORK:
            raise BadXPath(f"{self._whole!r} looks at more than {_MOST_WORK} nodes of the page")

    def binary(self, level: int) -> _Expression:
        if level == len(_OPERATORS):
            return self._unary()
        left = self.binary(level + 1)
        while self.here in _OPERATORS[level]:
            operator = self._take()
            left = _operation(operator, left, self.binary(level + 1))
        return left

    def _unary(self) -> _Expression:
        minus = False
        while self.here == "-":
            self._take()
            minus = not minus
        value = self._union()
        return (lambda context: -_number(value(context))) if minus else value

    def _union(self) -> _Expression:
        parts = [self._path()]
        while self.here == "|":
            self._take()
            parts.append(self._path())
        if len(parts) == 1:
            return parts[0]
        return lambda context: _ordered([node for part in parts for node in _nodes(part(context))])

    def _path(self) -> _Expression:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise BadXPath("the XPath is too nested")
        start: _Expression | None = None
        if self.here in ("/", "//"):
            start = lambda context: [_root(context.node)]  # noqa: E731
            if self.here == "/":
                self._take()
                if not self._at_step():
                    self._depth -= 1
                    return start
        elif self._is_primary():
            start = self._filtered(self._primary())
        steps = list[Callable[[_Node], list[_Node]]]()
        if start is None or (self._tokens[self._at - 1] == "/"):
            steps.append(self._step())
        while self.here in ("/", "//"):
            if self._take() == "//":
                steps.append(lambda node: self._along("descendant-or-self", "node()", node))
            steps.append(self._step())
        self._depth -= 1
        return _walk(start, steps) if steps else start or _walk(None, steps)

    def _at_step(self) -> bool:
        return self.here in ("@", ".", "..", "*") or bool(re.match(r"[A-Za-z_]", self.here))

    def _is_primary(self) -> bool:
        if self.here == "(" or self.here[:1] in "\"'" or re.match(r"\.?\d", self.here):
            return bool(self.here)
        return self._next == "(" and self.here not in _NODE_TYPES

    def _primary(self) -> _Expression:
        token = self._take()
        if token == "(":
            inner = self.binary(0)
            self._take(")")
            return inner
        if token[0] in "\"'":
            return lambda context: token[1:-1]
        if re.match(r"\.?\d", token):
            number = float(token)
            return lambda context: number
        arguments = list[_Expression]()
        self._take("(")
        while self.here != ")":
            arguments.append(self.binary(0))
            if self.here != ")":
                self._take(",")
        self._take(")")
        return self._function(token, arguments)

    def _function(self, name: str, arguments: list[_Expression]) -> _Expression:
        if name not in _FUNCTIONS:
            raise BadXPath(f"{self._whole!r} uses {name}(), which is not known here")
        function, least, most = _FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            raise BadXPath(f"{self._whole!r} gives {name}() {len(arguments)} values")
        return lambda context: function(context, *(argument(context) for argument in arguments))

    def _filtered(self, primary: _Expression) -> _Expression:
        predicates = self._predicates()
        if not predicates:
            return primary
        return lambda context: _kept(_nodes(primary(context)), predicates)

    def _predicates(self) -> list[_Expression]:
        found = list[_Expression]()
        while self.here == "[":
            self._take()
            found.append(self.binary(0))
            self._take("]")
        return found

    def _step(self) -> Callable[[_Node], list[_Node]]:
        if self.here in (".", ".."):
            axis, test = ("self" if self._take() == "." else "parent"), "node()"
        else:
            axis = "child"
            if self.here == "@":
                self._take()
                axis = "attribute"
            elif self._next == "::":
                axis = self._take()
                self._take("::")
                if axis not in _AXES:
                    raise BadXPath(f"{self._whole!r} has an axis {axis!r}, which is not known here")
            test = self._take()
            if test != "*" and not re.match(r"[A-Za-z_]", test):
                raise BadXPath(f"{self._whole!r} cannot be read at {test!r}")
            if self.here == "(" and test in _NODE_TYPES:
                self._take("(")
                self._take(")")
                test = f"{test}()"
        predicates = self._predicates()
        return lambda node: _kept(self._along(axis, test, node), predicates)

    def _along(self, axis: str, test: str, node: _Node) -> list[_Node]:
        found = _AXES[axis](node)
        self._spend(1 + len(found))
        return [one for one in found if _passes(one, axis, test)]


def _walk(start: _Expression | None, steps: Sequence[Callable[[_Node], list[_Node]]]) -> _Expression:
    def evaluate(context: _Context) -> _Value:
        nodes = [context.node] if start is None else _nodes(start(context))
        for step in steps:
            nodes = _ordered([found for node in nodes for found in step(node)])
        return nodes

    return evaluate


def _kept(nodes: list[_Node], predicates: Sequence[_Expression]) -> list[_Node]:
    """Positions count along the axis, as the nodes come."""
    for predicate in predicates:
        kept = []
        for i, node in enumerate(nodes, 1):
            value = predicate(_Context(node, i, len(nodes)))
            if value == i if isinstance(value, float) else _truth(value):
                kept.append(node)
        nodes = kept
    return nodes


def _passes(node: _Node, axis: str, test: str) -> bool:
    if test == "node()":
        return True
    if test == "text()":
        return isinstance(node, _Leaf) and node.name == "#text"
    if isinstance(node, _Leaf):
        return axis == "attribute" and test in ("*", node.name)
    return bool(node.tag) and test.lower() in ("*", node.tag)


def _children(node: _Node) -> list[_Node]:
    if not isinstance(node, Element):
        return []
    return [child if isinstance(child, Element) else _Leaf("#text", child, node, i) for i, child in enumerate(node.children, 1)]


def _descendants(node: _Node) -> list[_Node]:
    found, waiting = list[_Node](), _children(node)[::-1]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting.extend(reversed(_children(one)))
    return found


def _ancestors(node: _Node) -> list[_Node]:
    found, above = list[_Node](), node.parent
    while above is not None:
        found.append(above)
        above = above.parent
    return found


def _attributes(node: _Node) -> list[_Node]:
    if not isinstance(node, Element):
        return []
    return [_Leaf(name, value, node, -i) for i, (name, value) in enumerate(reversed(node.attributes.items()), 1)]


def _siblings(node: _Node, after: bool) -> list[_Node]:
    around = [] if node.parent is None else _children(node.parent)
    at = next((i for i, one in enumerate(around) if one is node or one == node), 0)
    return around[at + 1 :] if after else around[:at][::-1]


def _around(node: _Node, after: bool) -> list[_Node]:
    """Everything after the node, or before it (nearest first), but for what it is in or what is in it."""
    found = list[_Node]()
    for one in (node, *_ancestors(node)):
        for sibling in _siblings(one, after):
            inside = [sibling, *_descendants(sibling)]
            found += inside if after else inside[::-1]
    return found


_AXES: dict[str, Callable[[_Node], list[_Node]]] = {
    "child": _children,
    "descendant": _descendants,
    "descendant-or-self": lambda node: [node, *_descendants(node)],
    "self": lambda node: [node],
    "parent": lambda node: [] if node.parent is None else [node.parent],
    "ancestor": _ancestors,
    "ancestor-or-self": lambda node: [node, *_ancestors(node)],
    "attribute": _attributes,
    "following-sibling": lambda node: _siblings(node, True),
    "preceding-sibling": lambda node: _siblings(node, False),
    "following": lambda node: _around(node, True),
    "preceding": lambda node: _around(node, False),
}


def _root(node: _Node) -> Element:
    above = node if isinstance(node, Element) else node.parent
    while above.parent is not None:
        above = above.parent
    return above


def _ordered(nodes: Sequence[_Node]) -> list[_Node]:
    """Each node once, in the page's order."""
    seen = {id(node) if isinstance(node, Element) else node: node for node in nodes}.values()

    def key(node: _Node) -> tuple[int, int]:
        return (node.place, 0) if isinstance(node, Element) else (node.parent.place, node.place)

    return sorted(seen, key=key)


def _nodes(value: _Value) -> list[_Node]:
    if not isinstance(value, list):
        raise BadXPath("a number or a text stands where elements should be selected")
    return value


def _words(value: _Value) -> str:
    if isinstance(value, list):
        return _content(value[0]) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return str(int(value)) if value == int(value) else str(value)
    return value


def _content(node: _Node) -> str:
    return node.text if isinstance(node, Element) else node.value


def _number(value: _Value) -> float:
    if isinstance(value, bool | float):
        return float(value)
    words = _words(value).strip()
    return float(words) if _NUMBER.fullmatch(words) else math.nan


def _truth(value: _Value) -> bool:
    if isinstance(value, float):
        return value != 0 and not math.isnan(value)
    return bool(value)


def _operation(operator: str, left: _Expression, right: _Expression) -> _Expression:
    if operator in ("and", "or"):
        stop = operator == "or"
        return lambda context: stop if _truth(left(context)) is stop else _truth(right(context))
    if operator in _ARITHMETIC:
        return lambda context: _ARITHMETIC[operator](_number(left(context)), _number(right(context)))
    return lambda context: _compare(operator, left(context), right(context))


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else a * math.inf,
    "mod": lambda a, b: math.fmod(a, b) if b and math.isfinite(a) else math.nan,
}


def _compare(operator: str, left: _Value, right: _Value) -> bool:
    """Of nodes, one that compares so is enough."""
    if isinstance(left, list) and not isinstance(right, bool):
        return any(_compare(operator, _content(node), right) for node in left)
    if isinstance(right, list) and not isinstance(left, bool):
        return any(_compare(operator, left, _content(node)) for node in right)
    if operator in ("=", "!="):
        if isinstance(left, bool) or isinstance(right, bool):
            same = _truth(left) == _truth(right)
        elif isinstance(left, float) or isinstance(right, float):
            same = _number(left) == _number(right)
        else:
            same = left == right
        return same == (operator == "=")
    a, b = _number(left), _number(right)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def _here(context: _Context, *values: _Value) -> str:
    return _words(values[0]) if values else _content(context.node)


def _name(context: _Context, *values: _Value) -> str:
    nodes = _nodes(values[0]) if values else [context.node]
    node = nodes[0] if nodes else None
    return node.tag if isinstance(node, Element) else node.name.removeprefix("#text") if node else ""


def _substring(context: _Context, text: _Value, start: _Value, length: _Value = math.inf) -> str:
    first = _rounded(_number(start))
    last = first + _rounded(_number(length))
    return "".join(c for i, c in enumerate(_words(text), 1) if first <= i < last)


def _rounded(number: float) -> float:
    return float(math.floor(number + 0.5)) if math.isfinite(number) else number


def _translate(context: _Context, text: _Value, old: _Value, new: _Value) -> str:
    after = _words(new)
    table = {ord(c): after[i] if i < len(after) else None for i, c in reversed(list(enumerate(_words(old))))}
    return _words(text).translate(table)


_FUNCTIONS: dict[str, tuple[Callable[..., _Value], int, int]] = {
    "position": (lambda c: float(c.position), 0, 0),
    "last": (lambda c: float(c.size), 0, 0),
    "count": (lambda c, nodes: float(len(_nodes(nodes))), 1, 1),
    "contains": (lambda c, text, part: _words(part) in _words(text), 2, 2),
    "starts-with": (lambda c, text, part: _words(text).startswith(_words(part)), 2, 2),
    "not": (lambda c, value: not _truth(value), 1, 1),
    "true": (lambda c: True, 0, 0),
    "false": (lambda c: False, 0, 0),
    "boolean": (lambda c, value: _truth(value), 1, 1),
    "string": (_here, 0, 1),
    "number": (lambda c, *value: _number(value[0] if value else _content(c.node)), 0, 1),
    "string-length": (lambda c, *value: float(len(_here(c, *value))), 0, 1),
    "normalize-space": (lambda c, *value: " ".join(_here(c, *value).split()), 0, 1),
    "concat": (lambda c, *values: "".join(map(_words, values)), 2, 9),
    "substring": (_substring, 2, 3),
    "substring-before": (lambda c, a, b: _words(a).partition(_words(b))[0] if _words(b) in _words(a) else "", 2, 2),
    "substring-after": (lambda c, a, b: _words(a).partition(_words(b))[2], 2, 2),
    "translate": (_translate, 3, 3),
    "name": (_name, 0, 1),
    "local-name": (_name, 0, 1),
}
