"""Recorded steps of Mind2Web: the page state as text, a step's target, how a predicted action is
scored, conversations, and score files.

The state is one text, so that an observation stores it like any page:

    Previous actions:
      [link]  Restaurants -> CLICK
    Their targets: 8612
    Candidates: 8635 8739 9370
    <html>…</html>

Candidates are `backend_node_id`s of the page's nodes, the best first. The actions are those of the
recording, not the agent's (teacher forcing, Self-MAP, ACL 2024, section on the task). If their
targets are known, a line lists them, with `-` for a lost target. If the target of the step is not
among the best candidates, no model is asked, and the candidates are on a separate line
(`Withheld:`). The website's topic (`Domain: Travel`, `Subdomain: Airlines`) precedes the candidates
if it is known.

A file holds the pages of a turn once, with the turn. `task.earlier` has only the actions; otherwise
the file size would grow with the square of the number of turns.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import msgspec

from prill.datasets.reading.records import UNREADABLE
from prill.errors import InputError
from prill.io.lines import open_lines, resolve_folder
from prill.io.store import decode_trajectory
from prill.types import Action, Observation, Step, StrPath, Trajectory

_PAST, _TARGETS = "Previous actions:", "Their targets:"
_WITHHELD, _CANDIDATES = "Withheld:", "Candidates:"
_DOMAIN, _SUBDOMAIN = "Domain:", "Subdomain:"
_INDENT = "  "
_LOST = "-"


@dataclass(frozen=True, slots=True)
class PageState:
    """A page, its candidates, and the actions already taken.

    Args:
        page: The page, as `cleaned_html`.
        candidates: The node ids of the candidates, the best first.
        past: The actions already taken, oldest first: `[role]  label -> OP: value`.
        targets: The node id of each of these actions, "" if it is lost. Empty: none is known.
        withheld: The candidates of a step that is not sent to a model; `candidates` is then empty.
        domain: The website's domain, "" where it is not known.
        subdomain: The website's subdomain, "" where it is not known.
    """

    page: str
    candidates: tuple[str, ...]
    past: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    domain: str = ""
    subdomain: str = ""

    def text(self) -> str:
        """Formats the state as one text, which `read_state` parses."""
        # so that no action can imitate another line
        past = [_INDENT + " ".join(action.splitlines()) for action in self.past]
        targets = (
            [" ".join([_TARGETS, *(target or _LOST for target in self.targets)])]
            if self.targets
            else []
        )
        withheld = [" ".join([_WITHHELD, *self.withheld])] if self.withheld else []
        about = [(_DOMAIN, self.domain), (_SUBDOMAIN, self.subdomain)]
        known = [" ".join([name, *said.split()]) for name, said in about if said]
        candidates = " ".join([_CANDIDATES, *self.candidates])
        return "\n".join([_PAST, *past, *targets, *withheld, *known, candidates, self.page])


def read_state(text: str) -> PageState:
    """Parses the text of a recorded page's state.

    Args:
        text: What `PageState.text` wrote.

    Raises:
        ValueError: The text is not such a state.
    """
    head, found, rest = text.partition(f"\n{_CANDIDATES}")
    if not found or not head.startswith(_PAST):
        raise ValueError(
            f"not the state of a recorded page, which starts with {_PAST!r} and has a line "
            f"{_CANDIDATES!r}"
        )
    candidates, _, page = rest.partition("\n")
    lines = head.split("\n")[1:]
    # from the end, in the order that `PageState.text` writes
    subdomain, domain, withheld, targets = (
        lines.pop().removeprefix(name).split() if lines and lines[-1].startswith(name) else []
        for name in (_SUBDOMAIN, _DOMAIN, _WITHHELD, _TARGETS)
    )
    return PageState(
        page,
        tuple(candidates.split()),
        tuple(line.removeprefix(_INDENT) for line in lines),
        tuple("" if target == _LOST else target for target in targets),
        tuple(withheld),
        " ".join(domain),
        " ".join(subdomain),
    )


def format_conversation(trajectory: Trajectory) -> str:
    """Returns the name of a turn's conversation. A single task is its own."""
    return str(trajectory.metadata.get("conversation", trajectory.id))


def rejoined(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Puts the earlier turns of a conversation, pages included, into `task.earlier`.

    The turns of a conversation have to be adjacent in the file. One conversation at a time is held
    in memory. An earlier turn that was not read before stays without pages; a turn that names no
    earlier ones gets all that were read before in its conversation.
    """
    conversation: str | None = None
    read: dict[str, Trajectory] = {}
    for turn in trajectories:
        if conversation != (conversation := format_conversation(turn)):
            read = {}
        earlier = tuple(read.get(past.id, past) for past in turn.task.earlier) or tuple(
            read.values()
        )
        read[turn.id] = replace(turn, task=replace(turn.task, earlier=()))
        yield replace(turn, task=replace(turn.task, earlier=earlier)) if earlier else turn


@dataclass(frozen=True, slots=True)
class TurnPlace:
    """Where a file holds a turn; `data` is one that has no position (in a compressed file)."""

    file: Path
    line: int
    start: int | None
    size: int
    conversation: str
    data: bytes | None = None
    site: str | None = None
    digest: str = ""

    def read(self) -> Trajectory:
        """Reads the turn. Raises InputError with file and line."""
        data = self.data
        try:
            if data is None:
                with self.file.open("rb") as file:
                    file.seek(self.start or 0)
                    data = file.read(self.size)
            return decode_trajectory(data, resolve_folder(self.file))
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{self.file}:{self.line}: {error}") from None


def without_pages(turn: Trajectory) -> Trajectory:
    """Returns the turn in the form for `task.earlier`: its goal and actions."""
    steps = tuple(Step(Observation(), step.action) for step in turn.steps)
    return replace(turn, task=replace(turn.task, earlier=()), steps=steps, final=None)


Scores = Mapping[str, Mapping[str, float]]


class _File(msgspec.Struct):
    scores: dict[str, dict[str, float]]


def sample_ids(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the sample ids of a turn's steps. Raises InputError for other data."""
    uids = trajectory.metadata.get("uids")
    if not isinstance(uids, list | tuple) or len(uids) != len(trajectory.steps):
        raise InputError(
            f"{trajectory.id}: metadata.uids has no id for each of the {len(trajectory.steps)} "
            "steps; convert the data again"
        )
    return tuple(f"{trajectory.id}_{uid}" for uid in uids)


def with_scores(trajectory: Trajectory, scores: Scores) -> Trajectory:
    """Returns the turn with its candidates by score; those without a score come last."""
    steps = [
        _ordered(step, scores.get(sample))
        for step, sample in zip(trajectory.steps, sample_ids(trajectory), strict=True)
    ]
    return replace(trajectory, steps=tuple(steps))


def read_scores(path: StrPath) -> dict[str, dict[str, float]]:
    """Reads a score file in JSON, plain or gzip. Raises InputError."""
    try:
        with open_lines(path) as file:
            return msgspec.json.decode(file.read(), type=_File).scores
    except (OSError, EOFError, zlib.error, *UNREADABLE) as error:
        raise InputError(
            f'{path}: not a score file of the form {{"scores": {{sample: {{node: score}}}}}}: '
            f"{error}"
        ) from None


def _ordered(step: Step, scores: Mapping[str, float] | None) -> Step:
    if not scores:
        return step
    state = read_state(step.observation.text or "")
    order = sorted(state.candidates, key=lambda id: -scores.get(id, float("-inf")))
    ranked = replace(state, candidates=tuple(order))
    return replace(step, observation=replace(step.observation, text=ranked.text()))


Scheme = Literal["generation", "multi-choice", "synapse"]
Match = Literal["parsed", "exact_text"]
TOP = 50  # candidates that an agent may choose among: Mind2Web, arXiv 2306.06070, section 4.1
_OPERATION = re.compile(r"(?:(?<!\S)(CLICK|SELECT|TYPE) )?\[([^\]]*)\](?: \[([^\]]+)\])?")


@dataclass(frozen=True, slots=True)
class StepTarget:
    """The target of a recorded step. `ranks` are the positives' ranks; None: not a candidate."""

    positives: tuple[str, ...]
    ranks: tuple[int | None, ...]
    operation: str
    value: str = ""

    def within(self, top: int) -> tuple[str, ...]:
        """Returns the positives among the best `top` candidates."""
        return tuple(
            id
            for id, rank in zip(self.positives, self.ranks, strict=True)
            if rank is not None and rank < top
        )

    @property
    def target(self) -> str:
        """The first positive, "" if there is none."""
        return self.positives[0] if self.positives else ""

    @property
    def text(self) -> str:
        """Formats the action in Synapse's form: `TYPE [12] [new york]`."""
        return format_action(self.operation, self.target, self.value)


@dataclass(frozen=True, slots=True)
class StepScore:
    """The score of one step. `element` is 0 or 1; `f1`, of the operation's words, in [0, 1]."""

    element: float = 0.0
    f1: float = 0.0
    success: bool = False


@dataclass(frozen=True, slots=True)
class Marking:
    """The scoring scheme of steps.

    A step without a right element among the best `top` candidates has no success. `step_match` is
    Synapse's: all parts of an action are right (`parsed`), or its text is the same.
    """

    scheme: Scheme = "generation"
    top: int = TOP
    step_match: Match = "parsed"

    def score(self, asked: StepTarget, done: Action | None) -> StepScore:
        """Scores a predicted action. None: there is none."""
        positives = asked.within(self.top)
        if not positives or done is None:
            return StepScore()
        if self.scheme == "synapse":
            return self._by_text(asked, done.text)
        operation = "" if done.kind == "none" else done.kind.upper()
        element = float(done.target in positives)
        # even for a click: MindAct's evaluators count a superfluous value
        text = f"{operation} {done.value or ''}"
        f1 = word_f1(
            text, _words(asked.operation, asked.value), punctuation=self.scheme == "multi-choice"
        )
        return StepScore(element, f1, element == 1 and f1 == 1)

    def scores(self, targets: Iterable[StepTarget], episode: Trajectory) -> list[StepScore]:
        """Scores the actions of an episode. A step that it does not have is wrong."""
        done = [step.action for step in episode.steps]
        both = zip_longest(targets, done)
        return [self.score(asked, action) for asked, action in both if asked is not None]

    def _by_text(self, asked: StepTarget, text: str) -> StepScore:
        operation, id, value = parse_action(text)
        gold = _words(asked.operation, asked.value)
        f1 = word_f1(_words(operation, value), gold, punctuation=False)
        exact = self.step_match == "exact_text"
        right = text == asked.text if exact else parse_action(text) == parse_action(asked.text)
        return StepScore(float(id == asked.target), f1, right)


USUAL = Marking()


def describe_step(step: Step) -> StepTarget:
    """Reads the target of a recorded step. Raises ValueError if it has no recorded page."""
    ranks = {id: rank for rank, id in enumerate(read_state(step.observation.text or "").candidates)}
    positives = tuple((step.action.target or "").split())
    return StepTarget(
        positives,
        tuple(map(ranks.get, positives)),
        step.action.kind.upper(),
        step.action.value or "",
    )


def format_action(operation: str, id: str, value: str | None) -> str:
    """Formats an action in Synapse's form: `CLICK [8635]`, `TYPE [12] [new york]`."""
    return f"{operation} [{id}]" + (f" [{value}]" if value and operation != "CLICK" else "")


def parse_action(text: str) -> tuple[str | None, str | None, str | None]:
    """Parses operation, id and value from Synapse's form. A missing part is None."""
    found = _OPERATION.search(text)
    return (found[1], found[2], found[3]) if found else (None, None, None)


def word_f1(predicted: str, gold: str, *, punctuation: bool) -> float:
    """Returns the F1 of two sets of words. `punctuation`: single marks count as words."""
    ours, theirs = (
        {
            word
            for word in text.split()
            if punctuation or len(word) > 1 or word not in string.punctuation
        }
        for text in (predicted, gold)
    )
    if not ours and not theirs:
        return 1.0
    both = len(ours & theirs)
    return 2 * both / (len(ours) + len(theirs)) if both else 0.0


def _words(operation: str | None, value: str | None) -> str:
    """Returns the operation with its value. A click has no value."""
    if operation == "CLICK" or not value:
        return operation or ""
    return f"{operation} {value}" if operation else value
