"""What a judge is shown: the texts of goal, actions, states and claims, and the frames of a run.

Text is quoted between random delimiters that no page can know. State 0 is the initial state, and
state i is the state after action i. Frames are cited by these numbers.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from prill.actions.elements import element_id, find_element
from prill.actions.ending import CLAIMED_SUCCESS
from prill.actions.phone import dual_points, is_swipe
from prill.models.prompts import clean, quoted, shorten
from prill.types import Action, Observation, Platform, Point, Task, Trajectory

_T = TypeVar("_T")
# So many consecutive words of the request, or half of it if that is more, are removed by
# `without_copies`.
_COPIED = 6
_WORD = re.compile(r"\w+")
_REMOVED = "(repeats the request)"
State = tuple[str, Observation]  # a description of the time, and the observation

_CLICK = re.compile(r"click \[(\w+)\] where \[\1\] is (?:\[\1\] )?(.+)", re.DOTALL)
_TYPE = re.compile(r"type \[(\w+)\] \[(.*)\] where \[\1\] is (?:\[\1\] )?(.+)", re.DOTALL)
# The same calls without the element's name, as agents write them. The last number is 1 if Enter
# follows.
_BARE_CALL = re.compile(r"(?:click \[\w+\]|type \[\w+\] \[(.*?)\](?: \[[01]\])?)", re.DOTALL)
_BARE_ID = re.compile(r"\[?([A-Za-z]{0,16}\d{1,16})\]?")
_NUMBERED = re.compile(r"\[[A-Za-z]{0,16}\d{1,16}\] ")
# Kinds of actions that address the user, and the text with which such an action starts if a
# converter did not recognise its kind.
_SPEECH = frozenset({"answer", "message", "stop"})
_SPEECH_CALL = re.compile(
    r"^[ \t]*(send_msg_to_user|report_infeasible|stop|answer|finish|finished|done|terminate|complete)\s*[\[({:]",  # noqa: E501
    re.I | re.M,
)
# Kinds whose value prill derives from the text: `scroll(-5)` is down.
_MOVES = frozenset({"press", "scroll", "swipe", "focus_tab"})
_TOUCHES = frozenset({"click", "tap", "double_click", "double_tap"})
# Elements with these names submit or complete something.
_SUBMITTING = re.compile(
    r"\b(submit|save|send|order|buy|purchase|pay|book|reserve|confirm|apply|post|publish|create|add|update|delete|remove"
    r"|check ?out|sign (in|up)|log ?in|register|continue|done|ok)\b",
    re.IGNORECASE,
)
_BREAKS, _UNQUOTED = re.compile(r"(?:\\[nrt])+"), re.compile(r"""[\\'"]""")
_WITHHELD = "prill.claims_withheld"  # a metadata key that judges are not shown
_ACTION_CHARS, _MIN_ACTION_CHARS = 500, 60
_ELEMENT_CHARS, _ADDRESS_CHARS, _STOP_CHARS = 200, 300, 200
_EARLIER_TURNS, _EARLIER_CHARS = 20, 300  # the last turns of a conversation
_SHORT = 20  # a string this short may be part of another word


def asked_for(task: Task) -> str:
    """Returns the user's request as a quotation, preceded by earlier requests of the conversation.

    A later turn may refer to the earlier requests.
    """
    block = quoted("request", task.goal)
    if not task.earlier:
        return block
    turns = range(max(0, len(task.earlier) - _EARLIER_TURNS), len(task.earlier))
    lines = "\n".join(
        f"{i + 1}. {shorten(_flat(task.earlier[i].task.goal), _EARLIER_CHARS)}" for i in turns
    )
    return (
        f"{block}\n\nEarlier in this conversation the user "
        f"asked:\n\n{quoted('earlier-requests', lines)}"
    )


def request(trajectory: Trajectory) -> str:
    """Returns the goal and, if recorded (`metadata["date"]`), the start time."""
    block = asked_for(trajectory.task)
    date = trajectory.metadata.get("date")
    try:
        began = datetime.fromisoformat(date) if isinstance(date, str) else None
    except ValueError:
        began = None
    if began is None or not isinstance(date, str):
        return block
    # The date is formatted again because the recorded text is untrusted.
    time = f", {began:%H:%M} {began.tzname() or ''}".rstrip() if ":" in date else ""
    return f"{block}\n\nThe agent began on {began:%A, %Y-%m-%d}{time}."


def action_text(action: Action, platform: Platform, page: str = "", *, paper: bool = False) -> str:
    """Returns an action's text for the judge, by the rules of arXiv 2404.06474, with omitted
    details.

    The rules: element numbers are removed, so that `click [7] where [7] is link 'Cart'` becomes
    `click at [link 'Cart']` (WebArena's format; prill's agents use it on phones too). On Android, a
    DualPoint becomes `tap` or `swipe on screen`. On iOS, a tap without a named element becomes
    `tap`. All other text is unchanged.

    The added details: the value, as in `type [red shoes]`; the element, as in ` at [button
    'Save']`, from the action's target or from the line of `page` (the text of the state before the
    action) with its number; without an element, the position in fractions of the screen; and Enter
    if the value ends in a line break. With `paper`, nothing is added.
    """
    element = _element(action, page)
    text = _paper_action(action, platform, element)
    if paper and action.text:
        return text
    value = action.value or ""
    number = element_id(action.text) if text == action.text else None
    # the 5 of `type [5]` is not what was typed
    rest = text.replace(number, "", 1) if number else text
    if not _says(rest, value) and not (action.kind in _MOVES and " " in text):
        text = f"{text} [{value.strip()}]"
    if element and not _says(text, element):
        text = f"{text} at [{element}]"
    if action.point is not None and not element and not re.search(r"\d", text):
        text = (
            f"{text} at "
            f"{' to '.join(_place(p) for p in (action.point, action.end_point) if p is not None)}"
        )
    return f"{text} and press Enter" if action.kind == "type" and value.endswith("\n") else text


def _paper_action(action: Action, platform: Platform, element: str | None) -> str:
    text = action.text or action.kind
    if click := _CLICK.fullmatch(text):
        return f"click at [{click[2]}]"
    if entry := _TYPE.fullmatch(text):
        return f"type [{entry[2]}] at [{entry[3]}]"
    if element and not _BARE_ID.fullmatch(element) and (call := _BARE_CALL.fullmatch(text)):
        return f"click at [{element}]" if call[1] is None else f"type [{call[1]}] at [{element}]"
    if platform == "android" and (points := dual_points(text)):
        return "swipe on screen" if is_swipe(*points) else "tap"
    if platform == "ios" and action.target is None and "tap" in text.lower():
        return "tap"
    return text


def _element(action: Action, page: str) -> str | None:
    """Returns the element's description without its number, or only the number without one."""
    target = _flat(action.target or "")
    if not target:
        return find_element(action.text, page)
    if number := _BARE_ID.fullmatch(target):
        return find_element(f"click [{number[1]}]", page) or target
    number = _NUMBERED.match(target)
    return shorten(target[number.end() :] if number else target, _ELEMENT_CHARS)


def _says(text: str, part: str) -> bool:
    """Returns whether the text has the part as whole words, whatever quotation marks and breaks."""
    if not part:
        return True
    text, part = (_UNQUOTED.sub("", _flat(_BREAKS.sub(" ", words))) for words in (text, part))
    if len(part) > _SHORT or not part:
        return part in text
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


def _place(point: Point) -> str:
    return f"({point[0]:.2f}, {point[1]:.2f})"


def run_ending(trajectory: Trajectory) -> str:
    """Returns what ended the run, if it was not the agent or the environment: an error, a limit or
    a stop. Empty if it is not recorded. The text of an error is left out: it may tell the outcome.
    """
    if trajectory.error:
        return "the run broke off with an error"
    recorded = trajectory.metadata
    stopped = recorded.get("stopped")
    if recorded.get("ended_by") == "early_stop" and isinstance(stopped, str):
        return f"the run was stopped: {shorten(_flat(stopped), _STOP_CHARS)}"
    if recorded.get("ended_by") == "max_steps" or recorded.get("truncated") is True:
        return "the run was stopped at its limit of actions"
    return ""


def action_history(trajectory: Trajectory, max_chars: int = 24_000, *, paper: bool = False) -> str:
    """Returns all actions as numbered lines, `1: …`, shortened to about `max_chars` in total."""
    texts = [_flat(_history_text(trajectory, i, paper=paper)) for i in range(len(trajectory.steps))]
    share = min(_ACTION_CHARS, max(_MIN_ACTION_CHARS, max_chars // max(1, len(texts))))
    lines = [f"{i}: {shorten(text, share)}" for i, text in enumerate(texts, 1)]
    return "\n".join(lines) or "(no actions)"


def _history_text(trajectory: Trajectory, i: int, *, paper: bool = False) -> str:
    step = trajectory.steps[i]
    action = step.action
    if (
        action.is_final
        and trajectory.answer
        and action.value
        and _says(trajectory.answer, action.value)
    ):
        action = replace(action, value=None)  # the answer is quoted separately
    return action_text(action, trajectory.task.platform, step.observation.text or "", paper=paper)


def claims(trajectory: Trajectory, max_chars: int, *, answer: bool, thoughts: bool) -> str:
    """Returns the agent's claims as quotations.

    The result is empty if neither part is wanted, or if the claims were removed.
    """
    blocks: list[str] = []
    # the agent may have answered, so do not write "no answer"
    if are_withheld(trajectory):
        return ""
    if answer:
        blocks.append(quoted("answer", shorten(trajectory.answer or "(none)", max_chars)))
    if thoughts:
        blocks.append(quoted("thoughts", thought_lines(trajectory, max_chars)))
    return "\n\n".join(blocks)


def are_withheld(trajectory: Trajectory) -> bool:
    """Returns whether `without_claims` removed the agent's claims, which it may have made."""
    return _WITHHELD in trajectory.metadata


def thought_lines(trajectory: Trajectory, max_chars: int) -> str:
    """Returns the agent's thoughts as lines with action numbers, in about `max_chars`."""
    share = max(_MIN_ACTION_CHARS, max_chars // max(1, len(trajectory.steps)))
    numbered = ((i, step.thought) for i, step in enumerate(trajectory.steps, 1) if step.thought)
    return (
        "\n".join(f"{i}: {shorten(_flat(thought), share)}" for i, thought in numbered) or "(none)"
    )


def without_claims(trajectory: Trajectory) -> Trajectory:
    """Returns the trajectory without the agent's thoughts, answer and message texts."""
    steps = tuple(
        replace(step, thought=None, action=_silent(step.action)) for step in trajectory.steps
    )
    metadata = {key: value for key, value in trajectory.metadata.items() if key != CLAIMED_SUCCESS}
    return replace(trajectory, steps=steps, answer=None, metadata={**metadata, _WITHHELD: True})


def _silent(action: Action) -> Action:
    if action.kind in _SPEECH:
        return replace(action, text=action.kind, target=None, value=None)
    # Some agents write several calls in one action. Typed text is evidence, even if it looks like a
    # call.
    text = action.text.strip()
    call = _SPEECH_CALL.search(text) if action.kind == "other" else _SPEECH_CALL.match(text)
    if call is None:
        return action
    return replace(
        action, text=text[: call.start()].strip() or action.kind, target=None, value=None
    )


def states(trajectory: Trajectory) -> list[State]:
    """Returns every recorded state, oldest first."""
    actions = len(trajectory.steps)
    return [
        (
            "after the last action" if i == actions else f"before action {i + 1} of {actions}",
            observation,
        )
        for i, observation in enumerate(trajectory.observations)
    ]


def endings(trajectory: Trajectory) -> frozenset[int]:
    """Returns the indices in `observations` of the states that can show the outcome.

    A judge needs at least one of them in a form that it can read.

    These are the state after the last action, and the state before it if that action only addressed
    the user. If the state after the last action was not recorded, they are the last two recorded
    states.
    """
    index = count = len(trajectory.steps)
    endings_found = {count} if trajectory.final is not None else {count - 1, count - 2}
    while index and trajectory.steps[index - 1].action.kind in _SPEECH:
        index -= 1
        endings_found.add(index)
    states = len(trajectory.observations)
    return frozenset(i for i in endings_found if 0 <= i < states)


def select_frames(trajectory: Trajectory, count: int | None) -> list[State]:
    """Returns the states whose screenshots are shown, oldest first: those of the last `count`
    distinct pictures, or the key states.

    The key states are the first, the one before the action that submitted something, and the last
    two. Of equal pictures only the latest is used. The result is empty if no state that can show
    the outcome has a screenshot.
    """
    every = states(trajectory)
    if not any(every[i][1].screenshot for i in endings(trajectory)):
        return []
    frames = [i for i, (_, state) in enumerate(every) if state.screenshot]
    if count is not None:
        return _distinct([every[i] for i in frames], count)
    indices = {frames[0], *frames[-2:]}
    if len(indices) < len(frames) and (submission := _submission(trajectory)) in frames:
        indices.add(submission)
    return _distinct([every[i] for i in sorted(indices)])


def fewer(frames: Sequence[_T], most: int | None) -> list[_T]:
    """Returns at most `most` frames, oldest first: the last, the first, the latest others."""
    if most is None or len(frames) <= most:
        return list(frames)
    return [*frames[: most > 1], *frames[len(frames) - max(1, most - 1) :]]


def not_all(shown: int, frames: int) -> str:
    """Returns a note for the verdict's reason if not all frames were shown, else ""."""
    return (
        f" [{shown} of {frames} frames were shown: the request had no room for more]"
        if shown < frames
        else ""
    )


def _submission(trajectory: Trajectory) -> int | None:
    """Returns the index of the last action that pressed Enter or touched a submit, save or order
    element.

    Without such an action, it is the last action after which the page's URL or text changed. None:
    there is no such action either.
    """
    indices = range(len(trajectory.steps) - 1, -1, -1)
    if (index := next((i for i in indices if _submits(trajectory, i)), None)) is not None:
        return index
    pages = [(state.url, state.text) for state in trajectory.observations]
    return next((i for i in indices if i + 1 < len(pages) and pages[i] != pages[i + 1]), None)


def _submits(trajectory: Trajectory, i: int) -> bool:
    action = trajectory.steps[i].action
    if action.kind == "type":
        return (action.value or "").endswith("\n")
    if action.kind == "press":
        return "enter" in f"{action.text} {action.value}".lower()
    return action.kind in _TOUCHES and _SUBMITTING.search(_history_text(trajectory, i)) is not None


def _distinct(frames: Sequence[State], most: int | None = None) -> list[State]:
    """Returns the latest `most` distinct pictures."""
    selected: list[State] = []
    for frame in reversed(frames):
        if len(selected) == most:
            break
        if not any(_same_picture(frame[1], other[1]) for other in selected):
            selected.insert(0, frame)
    return selected


def _same_picture(one: Observation, other: Observation) -> bool:
    if not one.screenshot or not other.screenshot:
        return False
    try:
        return one.screenshot == other.screenshot or filecmp.cmp(
            one.screenshot, other.screenshot, shallow=False
        )
    except OSError:
        return False  # a missing file is reported when it is sent


def address(observation: Observation) -> str:
    """Returns the state's URL on one line, shortened; empty if none was recorded."""
    return shorten(_flat(observation.url or ""), _ADDRESS_CHARS)


def state_text(text: str, observation: Observation) -> str:
    """Returns a state's URL and, below it, its text."""
    where = address(observation)
    return f"{where}\n" + text.removeprefix(f"{observation.url}\n") if where else text


def _flat(text: str) -> str:
    return " ".join(clean(text).split())


def without_copies(text: str, goal: str) -> str:
    """Removes passages that repeat the request: six of its words in a row, or half of them if more.

    Case and punctuation do not count. Requests of fewer words than that are left.
    """
    wanted = [word.group().casefold() for word in _WORD.finditer(goal)]
    size = max(_COPIED, (len(wanted) + 1) // 2)
    passages = {tuple(wanted[i : i + size]) for i in range(len(wanted) - size + 1)}
    found = list(_WORD.finditer(text))
    words = [word.group().casefold() for word in found]
    spans: list[tuple[int, int]] = []  # of words, without overlaps
    for i in range(len(words) - size + 1):
        if tuple(words[i : i + size]) in passages:
            start = spans.pop()[0] if spans and i <= spans[-1][1] else i
            spans.append((start, i + size))
    for start, end in reversed(spans):
        text = f"{text[: found[start].start()]}{_REMOVED}{text[found[end - 1].end() :]}"
    return text


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture (by path) or a text of the screen, and the ascending numbers of the states that
    show it.
    """

    states: tuple[int, ...]
    image: str | None = None
    text: str = ""
    address: str = ""  # of the last of the states


def best_frames(scores: Sequence[int | None], count: int, least: int = 1) -> list[int]:
    """Returns the ascending indices of the frames to show.

    They are the last frame, the best `count` others with a score of at least `least`, and the
    latest `count` without a score (None: the rating failed). Of equal scores, the later frame comes
    first.
    """
    last = len(scores) - 1
    ranking = sorted(
        ((s, i) for i, s in enumerate(scores[:-1]) if s is not None and s >= least), reverse=True
    )
    unrated = [i for i, s in enumerate(scores[:-1]) if s is None]
    return sorted(
        {
            *(i for _, i in ranking[:count]),
            *unrated[len(unrated) - min(count, len(unrated)) :],
            last,
        }
    )


def title(frame: Frame, run: Trajectory) -> str:
    """Returns a description of the states that a frame shows."""
    *same, last = frame.states
    when = (
        "the start"
        if last == 0
        else "after the last action"
        if last == len(run.steps)
        else f"after action {last}"
    )
    text = f"State {last} ({when})"
    return f"{text}; it looked the same in state {', '.join(map(str, same))}" if same else text


def frame_block(
    frames: Sequence[Frame], descriptions: Sequence[str], run: Trajectory, room: int
) -> str:
    """Returns a text of the frames, with the numbers of their images, in at most `room`
    characters.
    """
    share = room // max(1, len(frames))
    pieces, images = [], 0
    for frame, description in zip(frames, descriptions, strict=True):
        heading = title(frame, run)
        where = f"\n{quoted('address', frame.address)}" if frame.address else ""
        if frame.image is not None:
            images += 1
            pieces.append(f"Image {images}: {heading}{where}")
        elif frame.text:
            pieces.append(f"{heading}\n{quoted('state', shorten(frame.text, share))}")
        else:
            pieces.append(f"{heading}{where}")
        if description:
            pieces.append(quoted("description", shorten(description, share)))
    return "\n\n".join(pieces)


def image_lines(frames: Sequence[Frame], every: Sequence[Frame], run: Trajectory) -> str:
    """Returns a line for each image: its place among the actions, and its address.

    `every`: also the frames for which the request has no room.
    """
    places = [when for when, _ in states(run)]
    lines = "\n".join(
        f"Image {i}: the state {places[frame.states[-1]]}." for i, frame in enumerate(frames, 1)
    )
    if missing := [places[frame.states[-1]] for frame in every if frame not in frames]:
        lines += (
            f"\nNot shown, since the request has no room for more: the state {', '.join(missing)}."
        )
    where = [f"Image {i}: {frame.address}" for i, frame in enumerate(frames, 1) if frame.address]
    return "\n\n".join([lines, *([quoted("addresses", "\n".join(where))] if where else [])])


def text_block(frames: Sequence[Frame], run: Trajectory, room: int) -> str:
    """Returns the texts of the last states, the latest last, in at most `room` in total."""
    share, every = room // max(1, len(frames)), states(run)
    blocks = []
    for i, frame in enumerate(frames, 1):
        when, state = every[frame.states[-1]]
        name = "state" if len(frames) == 1 else f"state-{i}"
        block = quoted(name, shorten(state_text(frame.text, state), share))
        blocks.append(f"The state {when}:\n{block}")
    return "\n\n".join(blocks)
