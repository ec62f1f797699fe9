"""A policy with a small language model that selects the most likely of the allowed actions.

It reads pages in the format of the MiniWoB++ environment, and accessibility trees. It can be
fine-tuned: `demonstrate` returns the prompt and the target reply of a recorded step. Elements are
identified by name, not by number, so that names can be copied from the goal.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from prill.actions.elements import read_target
from prill.config.shared import DeviceOption, ThreadsOption
from prill.errors import NoEvidenceError, UnparsableError
from prill.models.options import AdapterOption, AttemptOption, BatchOption, SamplingSeed
from prill.models.prompts import clean, load_prompt
from prill.policies.miniwob_text import PageElement, TextPage
from prill.protocols import Message
from prill.types import Action, Observation, Platform, Step, Task, Trajectory

if TYPE_CHECKING:
    from prill.models.local.choices import Chooser

# roles without actions
_ROLES_AS_TEXT = {
    *("text", "container", "dialog", "tabpanel", "row", "cell", "heading", "label", "image")
}
_LIST_ROLES = {"combobox", "listbox"}
_STATE_WORDS = ("checked", "selected", "expanded", "collapsed", "on")
_VALUE = re.compile(r'value "((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r" (#\d+)$")
_QUOTED = re.compile(r'"([^"]+)"')
# Larger pages cost seconds per step and do not help a small model.
_MAX_ELEMENTS, _MAX_VALUES, _MAX_CHARS, _MAX_HISTORY = 24, 3, 24, 2


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """An allowed action: the model's text for it, and the action for the environment."""

    words: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTextSpec:
    """The weights and the decoding settings.

    Episodes with the same weights and settings share one model.
    """

    model: Annotated[
        str, Meta(description="embedded, or a folder of weights for transformers.")
    ] = "embedded"
    adapter: AdapterOption = None
    temperature: Annotated[
        float, Meta(ge=0, le=5, description="Sampling temperature. 0 takes the most likely action.")
    ] = 0.0
    explore: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of actions that are sampled uniformly from all actions that "
            "the page allows.",
        ),
    ] = 0.0
    seed: SamplingSeed = 0
    attempt: AttemptOption = 0
    device: DeviceOption = None
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Meta(description="Data type of the weights (default: float32 on a CPU, else bfloat16)."),
    ] = None
    threads: ThreadsOption = None
    batch: BatchOption = 1


class SmallText:
    """A policy that selects an action by the log-probability of its text, including the end token.

    The model is loaded at the first action.
    """

    def __init__(self, spec: SmallTextSpec = SmallTextSpec()) -> None:
        self.spec = spec
        self._task = Task(goal="")
        self._history: list[str] = []
        self._random = Random()

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompt and the adapter's weights."""
        from prill.models.local.choices import weights_hash

        adapter = "" if self.spec.adapter is None else weights_hash(self.spec.adapter)
        return f"{load_prompt('prill.policies', 'small_text').hash} {adapter}".strip()

    def reset(self, task: Task) -> None:
        """Starts a new episode, with random choices seeded by task, seed and attempt."""
        self._task, self._history = task, []
        key = f"{task.id} {self.spec.seed} {self.spec.attempt}"
        self._random = Random(hashlib.sha256(key.encode()).digest())

    async def act(self, observation: Observation) -> Step:
        """Returns the next step; `stop` if the page allows no action.

        Raises:
            NoEvidenceError: The state has no text.
            ContextTooLongError: The request does not fit the model's window.
        """
        page, choices = read_page(self._task.goal, observation.text)
        if not choices:
            return Step(observation, Action("stop", "stop", value="nothing to do"))
        choice = choices[0]
        if self.spec.explore and self._random.random() < self.spec.explore:
            choice = self._random.choice(choices)
        elif len(choices) > 1:
            # loading takes seconds and must not block the event loop
            chooser = await asyncio.to_thread(self._chooser)
            log_probabilities = await chooser.score(
                _messages(self._task, page, self._history), [c.words for c in choices]
            )
            choice = self._select(choices, log_probabilities)
        self._history.append(_describe_action(choice.action))
        return Step(observation, choice.action)

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the policy's prompt at a step, and the reply for the recorded action."""
        step = trajectory.steps[index]
        page, choices = read_page(trajectory.task.goal, step.observation.text)
        choice = next(
            (choice for choice in choices if _is_same_action(choice.action, step.action)), None
        )
        if choice is None:
            raise UnparsableError(
                f"step {index + 1}: {step.action.text or step.action.kind} is not an action "
                "that this page allows"
            )
        return _messages(
            trajectory.task,
            page,
            [_describe_action(before.action) for before in trajectory.steps[:index]],
        ), choice.words

    def _chooser(self) -> Chooser:
        from prill.models.local.choices import load_chooser

        spec = self.spec
        return load_chooser(
            spec.model,
            spec.adapter,
            device=spec.device,
            dtype=spec.dtype,
            threads=spec.threads,
            batch=spec.batch,
        )

    def _select(
        self, choices: Sequence[ActionChoice], log_probabilities: Sequence[float]
    ) -> ActionChoice:
        top = max(log_probabilities)
        if self.spec.temperature == 0:
            return choices[log_probabilities.index(top)]
        return self._random.choices(
            choices, [math.exp((w - top) / self.spec.temperature) for w in log_probabilities]
        )[0]


def read_page(goal: str, text: str | None) -> tuple[str, list[ActionChoice]]:
    """Returns a short text of the page, and its allowed actions. Raises NoEvidenceError."""
    if text is None:
        raise NoEvidenceError("small-text reads the text of the page, but this state has none")
    lines: list[str] = []
    choices: dict[str, ActionChoice] = {}
    ancestors: dict[int, PageElement] = {}
    active = 0
    for element in TextPage.read(text).elements:
        ancestors[element.depth] = element
        if element.role in _ROLES_AS_TEXT or element.role in _LIST_ROLES:
            if element.role in _LIST_ROLES or (element.role == "text" and element.name):
                lines.append(
                    f"- {_short(element.name) if element.role == 'text' else element.role}"
                )
            continue
        active += 1
        if active > _MAX_ELEMENTS:
            break
        label = _label(element)
        lines.append(" ".join(filter(None, (label, *_state(element)))))
        for choice in _element_choices(goal, element, label, _list_of(element, ancestors)):
            choices.setdefault(choice.words, choice)
    return _plain("\n".join(lines)), list(choices.values())


def _element_choices(
    goal: str, element: PageElement, label: str, list_element: PageElement | None
) -> Iterator[ActionChoice]:
    text = f"click {label}"
    if list_element is not None:  # the entries of a collapsed list cannot be clicked
        yield ActionChoice(
            text, Action("select", text, target=list_element.target, value=element.name)
        )
        return
    yield ActionChoice(text, Action("click", text, target=element.target))
    if element.role == "textbox":
        for value in dict.fromkeys(_QUOTED.findall(goal)[:_MAX_VALUES]):
            text = f"type {_plain(value)} in {label}"
            yield ActionChoice(text, Action("type", text, target=element.target, value=value))


def _list_of(element: PageElement, ancestors: dict[int, PageElement]) -> PageElement | None:
    """Returns the list that contains an option."""
    if element.role != "option":
        return None
    around = (ancestors[depth] for depth in range(element.depth - 1, -1, -1) if depth in ancestors)
    return next((one for one in around if one.role in _LIST_ROLES), None)


def _label(element: PageElement) -> str:
    match = _NUMBER.search(element.target)
    return _plain(
        " ".join(filter(None, (element.role, _short(element.name), match[1] if match else "")))
    )


def _state(element: PageElement) -> Iterator[str]:
    value = _VALUE.search(element.state)
    rest = _VALUE.sub("", element.state).split()
    yield from (word for word in rest if word in _STATE_WORDS)
    if value is not None:
        yield f"= {_short(value[1])}" if value[1] else "(empty)"


def _short(name: str) -> str:
    return name if len(name) <= _MAX_CHARS else f"{name[: _MAX_CHARS - 2]}.."


def _plain(text: str) -> str:
    """Breaks the markers of chat templates, so that a page cannot end a turn or start another.

    No other injection matters, because the model can only choose among actions of this page.
    """
    return clean(text).replace("<|", "< |").replace("|>", "| >")


def _describe_action(action: Action) -> str:
    """Returns the description of an action for the history."""
    if action.kind == "type":
        return _plain(f"typed {action.value}")
    if action.kind == "select":
        return _plain(f"chose {action.value}")
    return _plain(
        f"{'clicked' if action.kind == 'click' else action.kind} "
        f"{(action.target or '').replace(chr(34), '')}".strip()
    )


def _messages(task: Task, page: str, done: Sequence[str]) -> tuple[Message, ...]:
    values = {
        "goal": _plain(task.goal),
        "page": page,
        "done": ", ".join(done[-_MAX_HISTORY:]) or "nothing",
    }
    turns = load_prompt("prill.policies", "small_text").fill(values)
    return Message("system", (turns["system"],)), Message("user", (turns["user"],))


def _is_same_action(one: Action, other: Action) -> bool:
    """Whether the actions are equal. An environment may have completed the element's line."""
    numbers = [read_target(action.target or "").number for action in (one, other)]
    same = one.target == other.target if None in numbers else numbers[0] == numbers[1]
    return same and (one.kind, one.value) == (other.kind, other.value)
