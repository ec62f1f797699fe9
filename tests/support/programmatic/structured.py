"""A programmatic model that plans and reflects for the structured reflection agent, with
configurable errors.

It reads the prompts of `prill.papers.structured_reflection`, and `solver.plan` knows the right
actions. Any other error is therefore the agent's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from prill.models.ledger import count_usage
from prill.models.prompts import estimate_tokens
from prill.protocols import Form, Message, Reply
from prill.types import Usage
from tests.support.programmatic.solver import Move, Node, plan

_LINE = re.compile(
    r'<(?P<tag>\w+)(?: id=(?P<id>\d+))?(?P<rest>(?: \w+="[^"]*")*)>(?P<text>.*)</(?P=tag)>'
)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_ACTION = re.compile(
    r'^(?P<verb>click|enter|press)\b(?: "(?P<text>.*)")?(?: to)?(?: id=(?P<id>\d+))?(?: (?P<key>\S.*))?$'  # noqa: E501
)
_BLOCK = re.compile(
    r"^screen before action index=\d+:\n(?P<screen>.*?)^action index=\d+: (?P<line>[^\n]*)$",
    re.MULTILINE | re.DOTALL,
)
_HIDDEN = 1_000_000
_HOLD, _RELEASE = Move("press", None, "hold Control"), Move("press", None, "release Control")


class StructuredPlanner:
    """A language model for `StructuredReflection`.

    `slips` are the steps (from 0) at which its plans name a wrong element, always the same one
    while its id is shown. After a slip it considers the task done. Its reflections find the first
    wrong step; the first `misjudged` of them for a step of a goal suggest another wrong element.
    `calls` counts the requests by type.
    """

    def __init__(self, slips: Collection[int] = (), *, misjudged: int = 0) -> None:
        self.slips, self.misjudged = frozenset(slips), misjudged
        self.calls: Counter[str] = Counter()
        self._slipped: set[tuple[str, int, Move]] = set()
        self._judged: Counter[tuple[str, int]] = Counter()

    @property
    def name(self) -> str:
        """The name of the model in records."""
        return "programmatic-planner"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """The answer to one of the agent's prompts."""
        text = str(messages[1].parts[0])  # a repeated request has the same answer
        kind, answer = next((kind, answer) for kind, mark, answer in _KINDS if mark in text)
        self.calls[kind] += 1
        said = answer(self, text)
        tokens = sum(estimate_tokens(str(part)) for message in messages for part in message.parts)
        usage = Usage(1, tokens, estimate_tokens(said))
        count_usage(usage)
        return Reply(said, usage, {})

    def _plan(self, prompt: str) -> str:
        goal, nodes = _goal(prompt), _nodes(_quotation(prompt, "screen"))
        done = [
            _move(line)
            for line in re.findall(r"^action \d+: (.*)$", _quotation(prompt, "done"), re.MULTILINE)
        ]
        if any((goal, step, move) in self._slipped for step, move in enumerate(done)):
            return "[eod]"
        try:
            moves = _held(plan(goal, nodes, done), nodes, done)
        except LookupError:
            return "[eod]"
        for place, move in enumerate(moves):
            step = len(done) + place
            if step in self.slips and (wrong := _other(nodes, move)) is not None:
                self._slipped.add((goal, step, wrong))
                return _lines([*moves[:place], wrong])
        return _lines(moves)

    def _reflection(self, prompt: str) -> str:
        goal, done = _goal(prompt), list[Move]()
        whole = _quotation(prompt, "attempt")
        # An element whose id is hidden at one step is often shown at another.
        known = {
            (line["tag"], line["text"]): int(line["id"])
            for line in _LINE.finditer(whole)
            if line["id"]
        }
        for place, block in enumerate(_BLOCK.finditer(whole), 1):
            nodes, taken = _nodes(block["screen"], known), _move(block["line"])
            try:
                right = _held(plan(goal, nodes, done), nodes, done)[:1]
            except LookupError:
                break
            if right and right[0] != taken:
                self._judged[goal, place] += 1
                wrong = (
                    _other(_nodes(block["screen"]), right[0], taken)
                    if self._judged[goal, place] <= self.misjudged
                    else None
                )
                return f"For action index={place}, you should {_written(wrong or right[0])}"
            done.append(taken)
        return "Nothing was wrong."

    def _paraphrase(self, prompt: str) -> str:
        """Returns the action unchanged, so that the planner can recognize it."""
        return prompt.rpartition("ACTION: ")[2].partition("\n")[0]

    def _grounding(self, prompt: str) -> str:
        words = _quotation(prompt, "action")
        found = [
            node
            for node in _nodes(_quotation(prompt, "screen"))
            if node.ref < _HIDDEN and node.text and node.text in words
        ]
        return str(found[0].ref) if found else "none"


_KINDS = (
    ("plan", "\nDONE SO FAR:", StructuredPlanner._plan),
    ("reflection", "\nATTEMPT:", StructuredPlanner._reflection),
    ("paraphrase", "\nIn one sentence, the action was to", StructuredPlanner._paraphrase),
    ("grounding", "\nThe id of its element is", StructuredPlanner._grounding),
)


def _goal(prompt: str) -> str:
    return str(
        re.findall(r"^GOAL: (.*?)\n(?:CODE|DONE SO FAR|STATUS):", prompt, re.MULTILINE | re.DOTALL)[
            -1
        ]
    )


def _quotation(prompt: str, name: str) -> str:
    found = re.search(rf"^\[{name} [^\]]*\]\n(.*?)^\[/{name} ", prompt, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _nodes(screen: str, known: Mapping[tuple[str, str], int] | None = None) -> list[Node]:
    """Returns the elements of a compact screen. An element whose id is hidden and not `known` gets
    a number that no page has.
    """
    found = []
    for place, line in enumerate(_LINE.finditer(screen), 1):
        ref = (
            int(line["id"])
            if line["id"]
            else (known or {}).get((line["tag"], line["text"]), _HIDDEN + place)
        )
        found.append(Node(ref, line["tag"], line["text"], dict(_ATTRIBUTE.findall(line["rest"]))))
    if found and not found[0].text and "ui-icon" in found[0].attributes.get("class", ""):
        # the elements before are icons of the instruction
        found.insert(1, Node(_HIDDEN, "div", "area"))
    return found


def _held(moves: Sequence[Move], nodes: Sequence[Node], done: Sequence[Move]) -> list[Move]:
    """Returns the moves with CTRL held while several options of a list are clicked. A plain click
    would deselect the others.
    """
    options = {node.ref for node in nodes if node.tag == "option"}
    chosen = [
        place for place, move in enumerate(moves) if move.kind == "click" and move.ref in options
    ]
    held = [move for move in done if move in (_HOLD, _RELEASE)][-1:] == [_HOLD]
    if not chosen:
        return [*([_RELEASE] if held else []), *moves]
    if len(chosen) == 1 and not held:
        return list(moves)
    first, last = chosen[0], chosen[-1] + 1
    return [*moves[:first], *([] if held else [_HOLD]), *moves[first:last], _RELEASE, *moves[last:]]


def _other(nodes: Sequence[Node], *but: Move) -> Move | None:
    """Returns a click on the first element with a visible id and a text that is not in `but`."""
    taken = {move.ref for move in but}
    found = next(
        (node.ref for node in nodes if node.ref < _HIDDEN and node.text and node.ref not in taken),
        None,
    )
    return None if found is None else Move("click", found)


def _move(line: str) -> Move:
    found = _ACTION.match(line.strip())
    if found is None:
        return Move("press", None, line)
    ref = int(found["id"]) if found["id"] else None
    if found["verb"] == "click":
        return Move("click", ref)
    return (
        Move("type", ref, found["text"] or "")
        if found["verb"] == "enter"
        else Move("press", None, found["key"] or "")
    )


def _written(move: Move) -> str:
    if move.kind == "click":
        return f"click id={move.ref}"
    if move.kind == "type":
        return f'enter "{move.text}" to id={move.ref}'
    return move.text if move in (_HOLD, _RELEASE) else f"press {move.text}"


def _lines(moves: Sequence[Move]) -> str:
    return "\n".join([*map(_written, moves), "[eod]"])
