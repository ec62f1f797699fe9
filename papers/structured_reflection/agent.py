"""An agent without examples (arXiv 2310.08740). It plans all actions of a screen in one call. A
failed attempt tells the next one which step to change.

It is a `Learner`, so `prill reflexion` plays its attempts. Its lessons hold everything it learned.
If an attempt ends without a result of the environment, its last action is `stop` with one of the
paper's states as value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from prill.actions.webarena import UnreadableActionError
from prill.errors import NoEvidenceError, TruncatedError, UnparsableError, UsageError
from prill.models.options import MaxTokensOption
from prill.models.prompts import NONCE, clean, content_hash, load_prompt, quoted
from prill.papers.page_text import PageText
from prill.papers.replies import (
    PaperAgent,
    RepairOption,
    ReplyCounts,
    UnreadableReplyError,
    ask_readable,
    fill_prompt,
    json_values,
    lower_keys,
    one_answer,
    plain_line,
    read_text,
    read_toml,
    visible_text,
)
from prill.papers.structured_reflection.actions import (
    PlannedOrder,
    detect_kind,
    format_line,
    number_in,
    parse_action,
    planned_lines,
    read_order,
    renumbered,
    whole_lines,
)
from prill.papers.structured_reflection.memory import AttemptMemory, Note, build_memory, write_note
from prill.papers.structured_reflection.screen import ElementScreen, read_screen
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task, Trajectory, Verdict

# How an attempt ended if it was not reported as a success. IN_PROGRESS: the steps ran out.
State = Literal["FAILED", "CYCLE", "NO_CHANGE", "INCOMPLETE", "EXCEPTION", "IN_PROGRESS"]
STATES: tuple[State, ...] = get_args(State)
_WHY: dict[State, str] = {
    "FAILED": "the plan for one screen is longer than a screen may take",
    "CYCLE": "the screen was there before",
    "NO_CHANGE": "the last action changed nothing",
    "INCOMPLETE": "the planner knows nothing more to do",
    "EXCEPTION": "the last action could not be carried out",
}
_PACKAGE = "prill.papers.structured_reflection"
_PROMPTS = ("plan", "paraphrase", "grounding", "reflection")
_PLANNED, _OUTLINED = "planned (", "outlined, "
FORCED, REPLAYED = "forced by the lesson for this step", "as in the attempt before"
# Tasks in which a right action may change nothing visible, so that the paper's state NO_CHANGE
# would end every attempt. The paper's code has a switch for each task.
_SHOWS_NOTHING = frozenset({"click-button-sequence"})
_INDEX = re.compile(r"index\W{0,5}(\d+)", re.IGNORECASE)
_ANSWER = re.compile(
    r"index\W{0,5}(\d+)[^\w\n]*\s*(?:you|the agent)\W+should(?:\W+(?:instead|have))?\s*:?[ \t*`]*\n?\s*(.+)",  # noqa: E501
    re.IGNORECASE,
)
_INDICES = ("index", "action_index", "step")
_REPLACED = ("action", "you_should", "should", "replacement", "correction", "suggestion")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredSpec:
    """Options for planning and learning. The defaults are the paper's agent."""

    planning: Annotated[
        Literal["staged", "iterative", "adaptive"],
        Meta(
            description="What one call plans: a screen, or one action. adaptive: one plan "
            "at the start."
        ),
    ] = "staged"
    reflection: Annotated[
        Literal["structured", "vanilla"],
        Meta(description="Lessons by step. vanilla: lessons are only shown."),
    ] = "structured"
    memory: Annotated[
        bool, Meta(description="Force the actions of lessons, and drop the lessons of later steps.")
    ] = True
    hide: Annotated[
        Literal["both", "plan", "reflection", "none"],
        Meta(description="Where the ids of elements that were tried in vain are hidden."),
    ] = "both"
    # The paper's successful attempts take 10.2 actions on average, so the limit of 10 in its code
    # cannot apply to executed plans.
    stage_steps: Annotated[
        int, Meta(ge=1, description="Maximum number of actions in one plan.")
    ] = 30
    paraphrase: Annotated[bool, Meta(description="Let the model paraphrase past actions.")] = True
    hints: Annotated[bool, Meta(description="Give known hints about two tasks.")] = False
    max_tokens: MaxTokensOption = 256
    repair: RepairOption = False


@dataclass(slots=True)
class _Done:
    """An executed action: the screen before it, and its description (None: not yet described)."""

    screen: str
    line: str
    description: str | None = None


class StructuredReflection(PaperAgent):
    """An agent that plans a whole screen at a time and learns which step to change.

    Args:
        model: The model.
        spec: The options.
        lessons: The results of `reflect` for earlier attempts; may change between episodes.
    """

    package: ClassVar[str] = _PACKAGE
    page_text: ClassVar[PageText] = "html"

    def __init__(
        self,
        model: LanguageModel,
        spec: StructuredSpec = StructuredSpec(),
        *,
        lessons: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.spec = spec
        self.lessons = list(lessons)
        self.reset(Task(goal=""))

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts and the lessons."""
        return content_hash(
            *(load_prompt(_PACKAGE, name).text for name in _PROMPTS), _source(), *self.lessons
        )

    def usual_settings(self, environment: str) -> dict[str, Any]:
        """Returns the paper's settings for an environment, and the maximum actions of a plan."""
        settings = super().usual_settings(environment)
        return {**settings, "stage_steps": self.spec.stage_steps} if settings else {}

    @property
    def memory(self) -> AttemptMemory:
        """The content of the lessons, by step."""
        structured = self.spec.reflection == "structured"
        wanted = structured and self.spec.memory
        memory = build_memory(self.lessons, forcing=wanted)
        return memory if structured else AttemptMemory(raw=memory.raw, unread=memory.unread)

    def reset(self, task: Task) -> None:
        """Begins a new attempt."""
        self._task = task
        self._memory = self.memory
        self._replaying = True
        self._done: list[_Done] = []
        self._queue: list[str] = []
        # the start of this stage, and the number of actions planned for it
        self._stage = self._planned = 0
        self._origin = self._outline = ""
        self._invalid = False
        self._replies = ReplyCounts()

    async def act(self, observation: Observation) -> Step:
        """Returns the next action, or `stop` with the state in which the attempt ended."""
        screen = read_screen(observation.text)
        state = self._result_after(screen.text()) or await self._turn(screen)
        if state is not None:
            why = f"{_PLANNED}nothing)" if state == "INCOMPLETE" else _WHY[state]
            return Step(observation, Action("stop", f"stop [{state}]", value=state), why)
        line = self._queue.pop(0)
        order = await self._read(line, screen)
        if order is None:
            self._invalid = True
            action = Action("other", line)
        else:
            action = parse_action(order, screen.leaf(order.ref) if order.ref else None)
            line = format_line(action)
        index = len(self._done) - self._stage + 1
        self._done.append(_Done(screen.text(), line))
        thought = (
            f"{self._origin}{index} of {self._planned})"
            if self._origin.endswith(_PLANNED)
            else self._origin
        )
        return Step(observation, action, thought)

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Returns the lesson: the step to change, as one line of JSON.

        Raises:
            UsageError: The attempt succeeded.
            NoEvidenceError: Nothing was done in the attempt.
            UnparsableError: The model names no action of the attempt.
            UnscoredError: The model gives no usable answer.
        """
        if verdict.success:
            raise UsageError("a successful attempt has no step to change")
        steps = [step for step in trajectory.steps if not step.action.is_final]
        if not steps:
            raise NoEvidenceError("this attempt has no actions, so no step can be changed")
        self._task = trajectory.task
        state = build_state(trajectory)
        lines = tuple(format_line(step.action) for step in steps)
        messages = self._reflection(steps, lines, state, verdict.reason)
        vanilla = self.spec.reflection == "vanilla"

        def read(reply: str) -> tuple[int, str] | None:
            try:
                return read_answer(reply, len(steps))
            except UnreadableReplyError:
                if vanilla:  # it is shown as it is
                    return None
                raise

        ask = partial(self._ask, "reflection")
        try:
            # these replies are of no episode, and not counted
            reply, found = await ask_readable(ask, messages, read, ReplyCounts(), repair=True)
        except UnreadableReplyError as error:
            raise UnparsableError(str(error)) from None
        if found is None:
            return write_note(Note(state=state, step=None, answer=reply))
        index, replacement = found
        screens = [read_screen(step.observation.text) for step in steps[: index + 1]]
        keys = tuple(map(_make_key, lines, screens))
        note = Note(
            state=state,
            step=index,
            answer=reply,
            replacement=replacement,
            taken=lines[index],
            before=lines[:index],
            replacement_key=_make_key(replacement, screens[index]),
            taken_key=keys[index],
            before_keys=keys[:index],
        )
        return write_note(note)

    def _result_after(self, now: str) -> State | None:
        """Returns the state in which the last action ended the attempt, if it did."""
        if self._invalid:
            return "EXCEPTION"
        if (
            not self._done
            or self._origin == REPLAYED
            or detect_kind(self._done[-1].line) in ("hold", "release")
        ):
            return None
        *earlier, last = (done.screen for done in self._done)
        if now == last:
            return None if self._name in _SHOWS_NOTHING else "NO_CHANGE"
        return "CYCLE" if now in earlier[self._stage :] else None

    async def _turn(self, screen: ElementScreen) -> State | None:
        """Plans until there is a next action. Returns a state if there is none."""
        step = len(self._done)
        if self._queue and step not in self._memory.notes:
            return "FAILED" if step - self._stage >= self.spec.stage_steps else None
        self._queue, self._stage = [], step
        prefix = self._memory.prefix
        if self._replaying and step < len(prefix):
            line = _on_screen(prefix[step], self._memory.prefix_keys[step], screen)
            if line is not None and await self._read(line, screen, ground=False) is not None:
                self._queue, self._origin = [line], REPLAYED
                return None
            self._replaying = False  # the page differs, so the following actions are planned
        note, line = self._memory.notes.get(step), None
        if note is not None:
            line = _on_screen(note.replacement, note.replacement_key, screen)
        if line is not None and step in self._memory.forced:
            self._queue, self._origin = [line], FORCED
        else:
            self._queue = await self._plan(screen, step, line)
        self._planned = len(self._queue)
        return None if self._queue else "INCOMPLETE"

    async def _plan(self, screen: ElementScreen, step: int, advised: str | None) -> list[str]:
        """Returns the actions that a call planned, empty if nothing is left to do. `advised` is
        the action that a lesson requires, if its element is on this screen.
        """
        lesson = None
        if advised is not None:  # the lesson with its element's id on this screen
            note = self._memory.notes[step]
            action = re.escape(note.replacement)
            lesson = re.sub(rf"{action}(?!\d)", lambda _: advised, note.answer)
        planning, self._origin = self.spec.planning, _PLANNED
        if planning == "adaptive" and not self._outline:
            outline = await self._plan_messages(screen, step, "outline", lesson)
            self._outline = await self._ask("plan", outline)
            self._origin = _OUTLINED + _PLANNED
        demand = planning if lesson is None else "lesson"
        messages = await self._plan_messages(screen, step, demand, lesson)
        try:
            _, lines = await ask_readable(
                partial(self._ask, "plan"),
                messages,
                planned_lines,
                self._replies,
                repair=self.spec.repair,
            )
        except UnreadableReplyError as problem:
            # an invalid action, so that the attempt ends as after any other invalid action
            return [f"unreadable: {problem}"]
        return lines if demand == "staged" else lines[:1]

    async def _plan_messages(
        self, screen: ElementScreen, step: int, demand: str, lesson: str | None
    ) -> Sequence[Message]:
        known = [] if lesson is None else [lesson]
        if self.spec.reflection == "vanilla":
            known = list(self._memory.raw)
        if self.spec.hints and (hint := _wording()["hints"].get(self._name)):
            known.insert(0, hint)
        return _filled(
            "plan",
            task=clean(self._name),
            screen=quoted("screen", screen.text(self._unseen("plan", screen, step))),
            goal=clean(self._task.goal),
            done=await self._describe_done(),
            lessons=_bullets(known),
            outline=f"OUTLINE:\n{quoted('outline', self._outline)}\n" if self._outline else "",
            demand=_wording()["demand"][demand],
        )

    async def _describe_done(self) -> str:
        """Returns the descriptions of past actions, each written once."""
        for done in self._done:
            if done.description is None:
                done.description = await self._description(done)
        text = "\n".join(
            f"action {index}: {done.description}" for index, done in enumerate(self._done, 1)
        )
        return quoted("done", text) if text else "nothing yet"

    async def _description(self, done: _Done) -> str:
        if not self.spec.paraphrase or detect_kind(done.line) == "press":
            return done.line
        more = _wording()["paraphrase"].get(self._name, "")
        request = _filled(
            "paraphrase",
            screen=quoted("screen", done.screen),
            action=clean(done.line),
            more=f" {more}" if more else "",
        )
        return (await self._ask("paraphrase", request)).strip()

    async def _read(
        self, line: str, screen: ElementScreen, *, ground: bool = True
    ) -> PlannedOrder | None:
        """Parses the line. Returns None if it cannot be carried out on this screen."""
        try:
            order = read_order(line)
        except UnreadableActionError:
            return None
        if order.kind == "click" and order.ref is None and ground:
            shown = quoted("screen", screen.text(self._unseen("plan", screen)))
            request = _filled("grounding", screen=shown, action=quoted("action", line))
            found = Counter(re.findall(r"\d+", await self._ask("grounding", request)))
            order = replace(order, ref=found.most_common(1)[0][0] if found else None)
        if order.kind == "click":
            return order if order.ref in screen.refs - self._unseen("plan", screen) else None
        return order if order.ref is None or order.ref in screen.refs else None

    def _unseen(
        self, where: Literal["plan", "reflection"], screen: ElementScreen, step: int | None = None
    ) -> frozenset[str]:
        """Returns the elements whose ids are hidden at a step, by default at the next one."""
        if self.spec.hide not in ("both", where):
            return frozenset()
        return screen.numbers(self._memory.hidden(len(self._done) if step is None else step))

    def _reflection(
        self, steps: Sequence[Step], lines: Sequence[str], state: State, reason: str
    ) -> Sequence[Message]:
        self._memory = self.memory
        blocks = []
        for index, (step, line) in enumerate(zip(steps, lines, strict=True)):
            screen = read_screen(step.observation.text)
            seen = screen.text(self._unseen("reflection", screen, index))
            blocks.append(f"screen before action index={index + 1}:\n{seen}")
            blocks.append(f"action index={index + 1}: {line}")
        judge = ""
        if reason not in ("", "FAILED"):
            judge = f"A judge, who may be wrong, said:\n{quoted('judge', reason)}\n"
        return _filled(
            "reflection",
            task=clean(self._name),
            attempt=quoted("attempt", "\n".join(blocks)),
            goal=clean(self._task.goal),
            status=_wording()["status"][state],
            judge=judge,
            lessons=_bullets(self._memory.raw if self.spec.reflection == "vanilla" else ()),
        )

    @property
    def _name(self) -> str:
        """The task's name, without the seed."""
        return self._task.site or self._task.id

    async def _ask(self, prompt: str, messages: Sequence[Message]) -> str:
        hashed = content_hash(load_prompt(_PACKAGE, prompt).text, _source())
        most = self.spec.max_tokens
        try:
            text = (await self.model.complete(messages, max_tokens=most, prompt=hashed)).text
        except TruncatedError as cut:
            # As in the paper, which uses the first 128 tokens of a reply. An empty reply is a
            # failed call.
            if not cut.text.strip():
                raise
            text = whole_lines(cut.text)
        return clean(visible_text(text))


def build_state(trajectory: Trajectory) -> State:
    """Returns the final state of an unsuccessful attempt."""
    if trajectory.steps and trajectory.steps[-1].action.is_final:
        stated = trajectory.steps[-1].action.value
        return next((state for state in STATES if state == stated), "FAILED")
    return "FAILED" if trajectory.metadata.get("ended_by") == "environment" else "IN_PROGRESS"


def planning_calls(trajectory: Trajectory) -> int:
    """Counts the calls that planned the actions of an attempt, not those for lessons."""
    thoughts = [step.thought or "" for step in trajectory.steps]
    outlines = sum(thought.startswith(_OUTLINED) for thought in thoughts)
    firsts = (f"{_PLANNED}1 of ", f"{_OUTLINED}{_PLANNED}1 of ", f"{_PLANNED}nothing")
    return outlines + sum(thought.startswith(firsts) for thought in thoughts)


def read_answer(reply: str, steps: int) -> tuple[int, str]:
    """Returns the step that an answer names, and its replacement. Raises UnreadableReplyError."""
    answer = one_answer(_answers(reply), lambda one: f"index={one[0]}, {one[1]}")
    if answer is None:
        lacks = "action that should stand there" if _INDEX.search(reply) else "action index"
        raise UnreadableReplyError(
            f"it names no {lacks}; the form is: For action index=A, you should B"
        )
    index, line = answer[0] - 1, answer[1]
    if not 0 <= index < steps:
        raise UnreadableReplyError(
            f"the attempt has the actions index=1 to index={steps}, and none of index={index + 1}"
        )
    try:
        read_order(line)
    except UnreadableActionError as error:
        raise UnreadableReplyError(str(error)) from None
    return index, line


def _answers(reply: str) -> Iterator[tuple[int, str]]:
    """Yields the indices in a reflection, from 1, each with its replacement action."""
    text = visible_text(reply)
    for value in json_values(text):
        table = lower_keys(value)
        index = next((table[key] for key in _INDICES if key in table), None)
        action = next((table[key] for key in _REPLACED if key in table), None)
        if str(index).isdecimal() and action is not None:
            written = json.dumps(action) if isinstance(action, dict) else str(action)
            yield int(str(index)), (planned_lines(written) or [""])[0]
    for found in _ANSWER.finditer(text):
        said = found[2].strip()
        line = plain_line(said.strip("\"'") if said[:1] in "'`*" else found[2])
        yield int(found[1]), plain_line(re.sub(r"(?:[.;]|\[eod\]|\s)+$", "", line)).strip()


def _make_key(line: str, screen: ElementScreen) -> str:
    """Returns the key of a line's element. Empty if the line names no element."""
    number = number_in(line)
    return "" if number is None else screen.key(number)


def _on_screen(line: str, key: str, screen: ElementScreen) -> str | None:
    """Returns the line with its element's id on this screen. None if the element is not on it."""
    if not key or number_in(line) is None:
        return line
    number = screen.number(key)
    return None if number is None else renumbered(line, number)


def _bullets(known: Sequence[str]) -> str:
    lines = "\n".join(f"* {one}" for one in known)
    return f"LESSONS of earlier attempts:\n{quoted('lessons', lines)}\n" if known else ""


def _filled(name: str, **values: str) -> Sequence[Message]:
    return fill_prompt(_PACKAGE, name, {**values, "code": NONCE})


def _source() -> str:
    return read_text(_PACKAGE, "wording.toml")


def _wording() -> dict[str, dict[str, str]]:
    return read_toml(_PACKAGE, "wording.toml")
