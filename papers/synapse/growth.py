"""Extends an exemplar memory with recorded trajectories that a judge accepted, and records the
judge of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prill.errors import UnparsableError
from prill.models.replies import excerpt
from prill.papers.page_text import REF
from prill.papers.synapse.agent import KEYS
from prill.papers.synapse.memory import Exemplar, ExemplarMemory, ExemplarTurn, key_text
from prill.papers.synapse.prompting import OBSERVED, task_table
from prill.papers.synapse.sandbox import (
    Call,
    CodeFailedError,
    Page,
    find_now,
    get_text,
    recorded_call,
)
from prill.types import Action, Step, Trajectory, Verdict

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

SAME = 0.98  # cosine of two keys above which the same first call means a duplicate
PER_TASK = 10
_NUMBER = re.compile(rf'\[?(\d+)\]?\s*|<[^>]*{REF}="(\d+)".*', re.DOTALL)
_SEEN = re.compile(rf"^{OBSERVED}(.*)", re.MULTILINE | re.DOTALL)
_KEY_NAMES = {
    "Space": "space",
    "Control+a": "command+a",
    "Control+c": "command+c",
    "Control+v": "command+v",
}


@dataclass(frozen=True)
class Growth:
    """The extended memory, and counts of what was left out or, by the labels, is wrong."""

    memory: ExemplarMemory
    added: tuple[Exemplar, ...]
    left_out: Mapping[str, int]
    problems: tuple[str, ...] = ()
    wrong: int | None = None
    unlabelled: int = 0


async def grow(
    memory: ExemplarMemory,
    trajectories: Iterable[Trajectory],
    verdicts: Mapping[str, Verdict],
    *,
    threshold: float | None = None,
    per_task: int = PER_TASK,
    labels: Mapping[str, bool | None] | None = None,
) -> Growth:
    """Adds the trajectories that a judge accepts to a memory of exemplars.

    An exemplar is skipped if another one has almost its key and the same first call.

    Args:
        memory: The memory. It is not changed.
        trajectories: The trajectories, in the order of processing.
        verdicts: Their verdicts by trajectory id.
        threshold: The least score of an accepted verdict, in [0, 1]. None: its success decides.
        per_task: The most exemplars of one task.
        labels: The labels by trajectory id, to count wrong new exemplars. None: not counted.

    Returns:
        The new memory, what was added, and what was left out, by reason.
    """
    left_out, problems, found = Counter[str](), list[str](), list[Exemplar]()
    for trajectory in trajectories:
        verdict = verdicts.get(trajectory.id)
        if verdict is None or verdict.unscored is not None:
            left_out["no verdict" if verdict is None else "unscored"] += 1
        elif not accepted(verdict, threshold):
            left_out["judged a failure" if threshold is None else "below the threshold"] += 1
        else:
            try:
                found.append(make_exemplar(trajectory, verdict.evaluator.name))
            except UnparsableError as problem:
                left_out["cannot be an exemplar"] += 1
                problems.append(f"{trajectory.id}: {problem}")
    grown = await _extended(memory, found, per_task, left_out)
    added = grown.exemplars[len(memory.exemplars) :]
    truths = None if labels is None else [labels.get(exemplar.source) for exemplar in added]
    return Growth(
        memory=grown,
        added=added,
        left_out=dict(left_out),
        problems=tuple(problems),
        wrong=None if truths is None else truths.count(False),
        unlabelled=0 if truths is None else truths.count(None),
    )


def accepted(verdict: Verdict, threshold: float | None) -> bool:
    """Returns whether the verdict meets the threshold. Without a probability it meets none."""
    if threshold is None:
        return bool(verdict.success)
    return verdict.score is not None and verdict.score >= threshold


async def _extended(
    memory: ExemplarMemory, found: Sequence[Exemplar], per_task: int, left_out: Counter[str]
) -> ExemplarMemory:
    """Returns the memory with those exemplars that are not duplicates."""
    everything = memory.with_exemplars([*memory.exemplars, *found])
    rows = await everything.vectors()
    of_task = Counter(exemplar.name for exemplar in memory.exemplars if exemplar.steps)
    sources = {exemplar.source for exemplar in memory.exemplars if exemplar.source}
    selected = {i for i, exemplar in enumerate(memory.exemplars) if exemplar.steps and exemplar.key}
    added = list[Exemplar]()
    for i, exemplar in enumerate(found, len(memory.exemplars)):
        twins = (j for j in selected if _first(everything.exemplars[j]) == _first(exemplar))
        if exemplar.source in sources:
            left_out["already there"] += 1
        elif any(float(rows[i] @ rows[j]) > SAME for j in twins):
            left_out["nearly the same as another"] += 1
        elif of_task[exemplar.name] >= per_task:
            left_out["beyond the most of its task"] += 1
        else:
            added.append(exemplar)
            selected.add(i)
            of_task[exemplar.name] += 1
    return memory.with_exemplars([*memory.exemplars, *added])


def _first(exemplar: Exemplar) -> str:
    return exemplar.steps[0].action.strip().partition("\n")[0]


def make_exemplar(trajectory: Trajectory, provenance: str) -> Exemplar:
    """Converts a trajectory to an exemplar. Raises UnparsableError if it has no HTML page, or an
    action without an equivalent call.

    Synapse's own recordings keep their turns and their abstracted pages. For other recordings of
    multi-turn tasks, a new turn begins at an action on an element that the turn's page did not
    have.
    """
    steps = [step for step in trajectory.steps if not step.action.is_final]
    first = steps[0].observation.text if steps else None
    if not first or "<" not in first:
        raise UnparsableError(
            "it has no steps, or its pages are not HTML (record MiniWoB++ with text = 'html')"
        )
    name = trajectory.task.site or trajectory.task.id
    several = task_table().turns.get(name, 1) > 1 and all(_words(step) is None for step in steps)
    turns = list[ExemplarTurn]()
    shown = Page(first)
    lines = list[str]()
    state, words = first, _words(steps[0])
    for i, step in enumerate(steps):
        text = step.observation.text or state
        page = Page(text)
        target = step.action.target
        gone = several and target is not None and _element(target, shown) is None
        if i and (_words(step) is not None or gone):
            turns.append(ExemplarTurn("\n".join(lines), state, words))
            lines, state, words, shown = [], text, _words(step), page
        lines += map(str, to_calls(step.action, page))
    turns.append(ExemplarTurn("\n".join(lines), state, words))
    goal = trajectory.task.goal
    return Exemplar(name, key_text(goal, first), goal, tuple(turns), provenance, trajectory.id)


def _words(step: Step) -> str | None:
    """Returns the abstracted page that Synapse noted, after all its other notes."""
    match = _SEEN.search(step.thought or "")
    return match[1] if match else None


def to_calls(action: Action, page: Page) -> list[Call]:
    """Returns the calls for a recorded action. Raises UnparsableError."""
    if (recorded := recorded_call(action.text)) is not None:
        return [recorded]
    element = None if action.target is None else _element(action.target, page)
    xpath = None if element is None else build_xpath(element, page)
    if action.target is not None and xpath is None:
        raise UnparsableError(f"{excerpt(action.text or action.kind)} has no target on the page")
    focus = [] if xpath is None else [Call("click_xpath", xpath)]
    if action.kind == "click" and focus:
        return focus
    if action.kind == "hover" and xpath is not None:
        return [Call("movemouse", xpath)]
    if action.kind == "type" and action.value is not None:
        return [*focus, Call("type", action.value)]
    if action.kind == "select" and xpath is not None:
        option = f"option[normalize-space()={_literal(action.value or '')}]"
        return [Call("click_option", f"{xpath}/{option}")]
    key = _KEY_NAMES.get(action.value or "", (action.value or "").lower())
    if action.kind == "press" and key in KEYS:
        return [*focus, Call("press", key)]
    raise UnparsableError(f"{excerpt(action.text or action.kind)} has no equivalent call")


def _element(target: str, page: Page) -> Element | None:
    if match := _NUMBER.fullmatch(target):
        number = match[1] or match[2]
        return next((element for element in page.elements if element.get(REF) == number), None)
    try:
        return next(iter(find_now(page, target)), None) if target.startswith(("/", "(")) else None
    except CodeFailedError:
        return None


def build_xpath(element: Element, page: Page) -> str:
    """Returns an XPath that selects only this element, by text first: it lasts to the next page."""
    tag, text = element.tag, get_text(element)
    content = " ".join(text.split())
    tries = list[str]()
    if content and len(content) <= 60 and not len(element):
        tries += [
            f"//{tag}[text()={_literal(text)}]",
            f"//{tag}[normalize-space()={_literal(content)}]",
        ]
    above = element.getparent()
    label = " ".join(get_text(above).split()) if above is not None and above.tag == "label" else ""
    if label and not content:
        tries.append(f"//label[normalize-space()={_literal(label)}]/{tag}")
    for name in ("id", "title", "name", "aria-label", "type", "class"):
        if value := element.get(name):
            tries.append(f"//{'*' if name == 'id' else tag}[@{name}={_literal(value)}]")
    for xpath in (*tries, f"//{tag}"):
        if page.own(xpath) == [element]:
            return xpath
    same = [one for one in page.elements if one.tag == tag]
    return f"(//{tag})[{same.index(element) + 1}]"


def _literal(text: str) -> str:
    """Returns an XPath literal, which cannot hold both kinds of quotes."""
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    return "concat('" + "', \"'\", '".join(text.split("'")) + "')"
