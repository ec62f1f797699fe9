"""Makes conversations from single tasks of Mind2Web, in MT-Mind2Web's format: grouped, divided into
turns, and rewritten (`prill papers conversations`).

The method is MT-Mind2Web's (ACL 2024). Tasks of one site that share words become a conversation.
Long tasks are divided into runs of actions, about one for every four actions. The instructions are
rewritten to refer to earlier turns. In the paper people wrote the instructions and checked the
division. Here a model does both; its proposals are validated, and a rule replaces the invalid ones.
Without a model the rules do everything, and no turn refers to an earlier one.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, to_builtins

from prill.config.values import Config
from prill.errors import (
    BudgetSpentError,
    CallTimeoutError,
    TransportError,
    UnscoredError,
    UsageError,
)
from prill.io.outputs import expect_file, make_folder, writing
from prill.io.store import BadLine
from prill.models.budget import run_budget
from prill.models.ledger import metered, usage_text
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.prompts import NONCE, load_prompt, quoted
from prill.models.registry import ModelConfig, ModelLike, make_model, model_options
from prill.papers.mind2web.format import records
from prill.papers.replies import (
    ReplyCounts,
    UnreadableReplyError,
    ask_readable,
    complete_text,
    fill_prompt,
    json_values,
    read_toml,
    visible_text,
)
from prill.protocols import LanguageModel
from prill.running import EXIT_ALL, EXIT_INTERRUPTED, EXIT_SOME, Printed, as_run, first_of
from prill.types import Usage

_T = TypeVar("_T")
ACTIONS_A_TURN = 4  # MT-Mind2Web: about n/4 turns for n actions, rounded up
MAX_TASKS = 3  # of one conversation, so that it has about five turns, as in MT-Mind2Web
_PACKAGE, _MAX_TOKENS = "prill.papers.mind2web", 700
# without a reply: request it again later, do not use the rule
_NO_ANSWER = (TransportError, CallTimeoutError, BudgetSpentError)
_WORD = re.compile(r"[a-z]{4,}|\d{4,}")
_COMMON = frozenset(read_toml("prill.papers.mind2web", "words.toml")["common"])
_ACTION = re.compile(
    r"\[(?P<role>[^\]]*)\]\s*(?P<label>.*?)\s*->\s*(?P<op>[A-Z]+)(?::\s*(?P<value>.*))?$", re.DOTALL
)


class _Task(msgspec.Struct):
    id: str = msgspec.field(name="annotation_id")
    goal: str = msgspec.field(name="confirmed_task")
    action_reprs: list[str]
    actions: list[dict[str, Any]]  # dropped after the check
    website: str = ""
    domain: str = ""
    subdomain: str = ""
    at: int = 0  # the offset of its record in the spool

    @property
    def site(self) -> tuple[str, str, str]:
        return self.domain, self.website, self.subdomain


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A planned turn: the actions of a task from `first` to `end` (exclusive)."""

    task: _Task
    first: int
    end: int
    instruction: str

    @property
    def actions(self) -> list[str]:
        """Its actions, as `[role]  label -> OP: value`."""
        return self.task.action_reprs[self.first : self.end]


@dataclass(slots=True)
class ConversationTally:
    """Counts of the processed tasks.

    `by_rule` tasks were divided, and `not_rewritten` conversations worded, by the rule although a
    model was asked. `unanswered` conversations have no plan because a call failed.
    """

    tasks: int = 0
    conversations: int = 0
    unanswered: int = 0
    turns: int = 0
    by_rule: int = 0
    not_rewritten: int = 0
    stopped: bool = False
    problems: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    done: int = 0

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: the phase, the count, the total, and a note."""
        return "", self.done, self.conversations, usage_text(self.usage)


def grouped_tasks(tasks: Sequence[_Task], most: int = MAX_TASKS) -> list[list[_Task]]:
    """Groups tasks of one site: each joins the group with which it shares the most words."""
    groups: dict[tuple[str, str, str], list[tuple[list[_Task], set[str]]]] = {}
    for task in tasks:
        words = (
            {*_WORD.findall(task.goal.lower())} - _COMMON - {*_WORD.findall(task.website.lower())}
        )
        of_site = groups.setdefault(task.site, [])
        best = max(
            (group for group in of_site if len(group[0]) < most),
            key=lambda group: len(group[1] & words),
            default=None,
        )
        if best is None or not best[1] & words:
            of_site.append(([task], words))
        else:
            best[0].append(task)
            best[1].update(words)
    return [group for of_site in groups.values() for group, _ in of_site]


def even_runs(count: int) -> list[tuple[int, int]]:
    """Divides the actions into runs of equal length, one for every four."""
    runs = -(-count // ACTIONS_A_TURN)
    return [(count * k // runs, count * (k + 1) // runs) for k in range(runs)]


def read_runs(reply: str, count: int) -> list[tuple[int, int]]:
    """Parses the proposed runs. Raises UnreadableReplyError unless they cover all actions."""
    runs = list(_object(reply).values())
    whole = all(isinstance(numbers, list) and numbers for numbers in runs)
    if not whole or list(chain.from_iterable(runs)) != list(range(1, count + 1)):
        raise UnreadableReplyError(f"the steps are not the actions 1 to {count}, each once")
    return [(numbers[0] - 1, numbers[-1]) for numbers in runs]


def instruction_from_action(action: str) -> str:
    """Converts `[role]  label -> OP: value` to an instruction: `type 10203 into Zip code`."""
    if (found := _ACTION.match(action.strip())) is None:
        return action.strip()
    label = found["label"] or f"the {found['role']}"
    forms = {
        "TYPE": f"type {found['value']} into {label}",
        "SELECT": f"select {found['value']} in {label}",
    }
    return forms.get(found["op"], f"click {label}")


def _spooled(source: str | Path, spool: IO[bytes], tally: ConversationTally) -> Iterable[_Task]:
    """Yields the single tasks. Their records go to the spool: pages do not fit in memory."""
    seen = set()
    for item in records(source):
        if isinstance(item, BadLine):
            tally.problems.append(item.message)
            continue
        place, record = item
        try:
            task = msgspec.convert(record, _Task)
        except msgspec.ValidationError as error:
            tally.problems.append(f"{place}: no single task of Mind2Web: {error}")
            continue
        if not task.actions or len(task.actions) != len(task.action_reprs) or task.id in seen:
            why = (
                "its id comes again"
                if task.id in seen
                else "needs one action_repr for each of its actions"
            )
            tally.problems.append(f"{place}: {task.id}: {why}")
            continue
        seen.add(task.id)
        task.actions.clear()
        task.at = spool.tell()
        spool.write(msgspec.json.encode(record) + b"\n")
        yield task


async def _planned(
    groups: Sequence[Sequence[_Task]],
    model: LanguageModel | None,
    tally: ConversationTally,
    at_once: int,
    stop: asyncio.Event | None,
    progress: Callable[[ConversationTally], object],
) -> list[list[ConversationTurn]]:
    room = asyncio.Semaphore(at_once)

    async def plan_one(group: Sequence[_Task]) -> list[ConversationTurn]:
        async with room:
            if stop is not None and stop.is_set():
                tally.stopped = True
                return []
            with metered() as meter:
                try:
                    turns = await _plan(group, model, tally)
                except _NO_ANSWER as error:
                    tally.unanswered += 1
                    tally.problems.append(f"{group[0].id}: {error}")
                    return []
                finally:
                    tally.usage += meter.usage
            tally.done += 1
            progress(tally)
            return turns

    try:
        async with asyncio.TaskGroup() as all_of:
            plans = [all_of.create_task(plan_one(group)) for group in groups]
    except ExceptionGroup as ended:
        raise ended.exceptions[0] from None  # the first failure has cancelled the rest
    return [plan.result() for plan in plans]


async def _plan(
    group: Sequence[_Task], model: LanguageModel | None, tally: ConversationTally
) -> list[ConversationTurn]:
    turns = []
    for task in group:
        runs = even_runs(len(task.action_reprs))
        if model is not None and len(runs) > 1:
            proposed = await _asked(model, tally, task.id, _division(task, len(runs)))
            tally.by_rule += proposed is None
            runs = proposed or runs
        for first, end in runs:
            words = ", then ".join(map(instruction_from_action, task.action_reprs[first:end]))
            words = task.goal if len(runs) == 1 else words
            turns.append(ConversationTurn(task, first, end, words[:1].upper() + words[1:]))
    if model is None or len(turns) == 1:
        return turns
    written = await _asked(model, tally, turns[0].task.id, _rewriting(turns))
    tally.not_rewritten += written is None
    return [
        replace(turn, instruction=words)
        for turn, words in zip(turns, written or [one.instruction for one in turns], strict=True)
    ]


# the name of a prompt, its values, and what reads the reply
_Question = tuple[str, dict[str, str], Callable[[str], _T]]


def _division(task: _Task, steps: int) -> _Question[list[tuple[int, int]]]:
    count = len(task.action_reprs)
    lines = (f"{k}. {' '.join(one.split())}" for k, one in enumerate(task.action_reprs, 1))
    values = {"task": quoted("task", task.goal), "actions": quoted("actions", "\n".join(lines))}
    values |= {"count": str(count), "steps": str(steps)}
    return "decompose", values, partial(read_runs, count=count)


def _rewriting(turns: Sequence[ConversationTurn]) -> _Question[list[str]]:
    turn_texts = []
    for k, turn in enumerate(turns, 1):
        lines = [f"Task: {turn.task.goal}", *(" ".join(one.split()) for one in turn.actions)]
        turn_texts.append(f"Turn {k}:\n{quoted('turn', chr(10).join(lines))}")

    def read(reply: str) -> list[str]:
        fields = _object(reply)
        texts = [fields.get(f"turn {k}") for k in range(1, len(turns) + 1)]
        good = [" ".join(text.split()) for text in texts if isinstance(text, str) and text.strip()]
        if len(good) < len(turns):
            raise UnreadableReplyError(f"it has no words for each of the {len(turns)} turns")
        return good

    return "rewrite", {"turns": "\n".join(turn_texts), "count": str(len(turns))}, read


async def _asked(
    model: LanguageModel, tally: ConversationTally, id: str, question: _Question[_T]
) -> _T | None:
    """Returns what `read` finds, after one more request if it fails. None for the rule instead."""
    name, values, read = question
    messages = fill_prompt(_PACKAGE, name, {**values, "code": NONCE})
    prompt = load_prompt(_PACKAGE, name).hash
    ask = partial(complete_text, model, max_tokens=_MAX_TOKENS, prompt=prompt)
    try:
        return (await ask_readable(ask, messages, read, ReplyCounts(), repair=True))[1]
    except _NO_ANSWER:
        raise
    except (UnscoredError, UnreadableReplyError) as error:
        tally.problems.append(f"{id}: {name}: {error}; the rule is used instead")
        return None


def _object(reply: str) -> dict[str, Any]:
    """Returns the JSON object in a reply. Raises UnreadableReplyError."""
    found = (value for value in json_values(visible_text(reply)) if isinstance(value, dict))
    if value := next(found, None):
        return value
    raise UnreadableReplyError("the reply has no JSON object")


def _record(planned: Sequence[ConversationTurn], spool: IO[bytes]) -> dict[str, Any]:
    """Returns the conversation in MT-Mind2Web's fields, with the actions as recorded."""
    first, turns, loaded = planned[0].task, list[dict[str, Any]](), dict[int, Any]()
    for number, turn in enumerate(planned):
        if turn.task.at not in loaded:
            spool.seek(turn.task.at)
            loaded = {turn.task.at: msgspec.json.decode(spool.readline())}
        turns.append(
            {
                "annotation_id": f"{first.id}-{number}",
                "confirmed_task": turn.instruction,
                "action_reprs": turn.actions,
                "actions": loaded[turn.task.at]["actions"][turn.first : turn.end],
            }
        )
    about = {name: getattr(first, name) for name in ("website", "domain", "subdomain")}
    return {"task_id": first.id, **about, "turns": turns}


@dataclass(frozen=True, kw_only=True)
class ConversationsConfig(Config):
    """Configuration of `prill papers conversations`."""

    source: Annotated[str | Path, Meta(description="File or folder of Mind2Web (JSON).")]
    output: Annotated[str | Path, Meta(description="File for the conversations (JSON).")]
    model: Annotated[
        ModelLike | None,
        Meta(description="Model that divides and rewrites tasks. Without it, rules are used."),
    ] = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 8


@dataclass(frozen=True)
class ConversationsResult(Printed):
    """Counts and problems; `by_model`: a model divided and rewrote the tasks."""

    tally: ConversationTally
    output: str
    by_model: bool
    of_files = True

    def notes(self) -> Iterator[str]:
        """Yields what is broken, what the model cost, and what is missing."""
        tally = self.tally
        yield from first_of(tally.problems, 20)
        if self.by_model:
            yield usage_text(tally.usage)

    @property
    def exit_code(self) -> int:
        """Returns 3 with problems or failed calls, 130 if the run was stopped."""
        if self.tally.stopped:
            return EXIT_INTERRUPTED
        return EXIT_SOME if self.tally.problems or self.tally.unanswered else EXIT_ALL

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts for JSON."""
        return {**to_builtins(self.tally), "output": self.output}

    def __str__(self) -> str:
        tally = self.tally
        if tally.stopped:
            return f"{self.output} is not written yet"
        if tally.unanswered:
            return (
                f"{tally.unanswered} of {tally.conversations} conversations got no reply, so "
                f"{self.output} is not written; run the same command again to retry them"
            )
        rule = (
            f"; the rule divided {tally.by_rule} tasks and worded {tally.not_rewritten} "
            "conversations"
            if self.by_model
            else ""
        )
        return (
            f"{self.output}: {tally.conversations} conversations, {tally.turns} turns of "
            f"{tally.tasks} tasks{rule}"
        )


@as_run(ConversationsConfig)
async def conversations(
    config: ConversationsConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[ConversationTally], object] = lambda tally: None,
) -> ConversationsResult:
    """Makes conversations from single tasks.

    Args:
        config: The tasks, and the model that divides them.
        stop: Once set, no new conversation begins.
        progress: Called after every conversation.

    Returns:
        The counts of the tasks, and the problems.

    Raises:
        UsageError: No task could be read, or the file already exists.
    """
    out, tally = Path(config.output), ConversationTally()
    if out.exists():
        raise UsageError(f"{out} already exists; choose another file", parameters=("output",))
    expect_file(out, "a file of conversations")
    make_folder(out)
    result = ConversationsResult(tally, str(config.output), config.model is not None)
    # The spool is as large as the source, and /tmp may have no room for it.
    with run_budget(config.budget_usd, file=out), tempfile.TemporaryFile(dir=out.parent) as spool:
        model = None if config.model is None else _model(config.model, config)
        tasks = list[_Task]()
        for task in _spooled(config.source, spool, tally):
            tasks.append(task)
            await asyncio.sleep(0)  # lets Ctrl-C through
            if stop is not None and stop.is_set():
                tally.stopped = True
                return result
        groups = grouped_tasks(tasks)
        if not groups:
            raise UsageError(
                f"{config.source}: no Mind2Web task could be read; {'; '.join(tally.problems[:3])}"
            )
        tally.tasks, tally.conversations = len(tasks), len(groups)
        plans = await _planned(groups, model, tally, config.concurrency, stop, progress)
        # After a failed call nothing is written; the next run has the other replies in its cache.
        if not tally.stopped and not tally.unanswered:
            with writing(out) as file:
                for number, turns in enumerate(plans):
                    tally.turns += len(turns)
                    record = msgspec.json.encode(_record(turns, spool))
                    file.write((b",\n" if number else b"[") + record)
                file.write(b"]\n")
    return result


def _model(model: ModelLike, config: ConversationsConfig) -> LanguageModel:
    """Makes the model. Its replies are cached next to the output, so that the next run resumes."""
    if not isinstance(model, ModelConfig):
        return make_model(model)
    usual = {"concurrency": config.concurrency, "cache": f"{config.output}.replies"}
    usual = {key: usual[key] for key in usual if key in model_options(model)}
    return make_model(model.name, **{**usual, **model.options})
