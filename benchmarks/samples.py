"""Plays the sample runs of MiniWoB++: `python benchmarks/samples.py [FOLDER]`.

For each of 31 tasks it records three pairs, on three pages (seeds). A pair is a success and a
failure with the same number of actions of the same kinds, the same ending and the same claim:

* `solve` and `wrong-target`: one value or element is another one;
* `look-first` and `unsent`: a click on nothing first; then all, or all but the last click, which
  goes to nothing too, while the answer says that it was done;
* `corrected` and `undone`: a wrong value, then the right one, or the other way round. Where no
  entry can be made twice: `solve` and `wrong-target` on another page.

The label is the page's reward alone. A page on which it does not tell a pair apart is passed over
for the next seed. Without FOLDER the samples in datasets/samples/miniwob are written, with
screenshots of a part. It needs the extra `web`, `miniwob` and Chromium; three minutes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from PIL import Image

from prill.emulators.miniwob.environment import MiniWoB
from prill.io.store import encode, write_trajectories
from prill.policies.miniwob_text import PageElement, TextPage, named
from prill.policies.scripted.scripts import match_groups, quoted
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory

SAMPLES = Path(__file__).parents[1] / "datasets/samples/miniwob"
PAIRS = (("solve", "wrong-target"), ("look-first", "unsent"), ("corrected", "undone"))
COLOURS = 32
_EDGE = 0.97  # of the height: no page has anything below
_SHORT = 24  # characters of a text that is clicked on for nothing
T = TypeVar("T")


@dataclass(frozen=True)
class Move:
    """The right action, and for some moves a wrong one of the same kind. The last move commits."""

    right: Action
    wrong: Action | None = None
    commit: bool = False


Play = Generator[Move, TextPage, None]


def click(element: PageElement, wrong: PageElement | None = None, *, commit: bool = False) -> Move:
    return Move(_click(element), wrong and _click(wrong), commit)


def enter(field: PageElement, value: str, wrong: str | None = None) -> Move:
    return Move(_type(field, value), None if wrong is None else _type(field, wrong))


def choose(field: PageElement, value: str, wrong: str | None = None) -> Move:
    return Move(_select(field, value), None if wrong is None else _select(field, wrong))


def submit(page: TextPage) -> Move:
    return click(page.all("button")[-1], commit=True)


def _click(element: PageElement) -> Action:
    return Action("click", f"click {element.target}", target=element.target)


def _type(field: PageElement, value: str) -> Action:
    return Action("type", f"type {value!r} into {field.target}", target=field.target, value=value)


def _select(field: PageElement, value: str) -> Action:
    text = f"select {value!r} in {field.target}"
    return Action("select", text, target=field.target, value=value)


def other(right: T, choices: Sequence[T], differs: Callable[[T], bool] | None = None) -> T:
    """Returns the choice after the right one that differs from it."""
    start = choices.index(right) + 1
    for choice in (*choices[start:], *choices[:start]):
        if differs(choice) if differs else choice != right:
            return choice
    raise LookupError("there is nothing else to choose")


def pick(elements: list[PageElement], name: str, *, commit: bool = False) -> Move:
    """Clicks the element of this name; wrong is the next one of another name."""
    right = named(elements, name)
    return click(right, other(right, elements, lambda e: e.name != name), commit=commit)


def misspelt(value: str) -> str:
    """Returns another value as long: two characters in the middle change places."""
    for at in sorted(range(1, len(value)), key=lambda at: abs(at - len(value) // 2)):
        if value[at - 1] != value[at]:
            return value[: at - 1] + value[at] + value[at - 1] + value[at + 1 :]
    raise LookupError(f"{value!r} has no other order")


def buy_ticket(goal: str, page: TextPage) -> Play:
    tickets = page.all("button")
    hours = [
        int(h) * 60 + int(m)
        for h, m in re.findall(r"(\d+)h (\d+)m", " ".join(e.name for e in page.all("text")))
    ]
    costs = [int(ticket.name.split("$")[1]) for ticket in tickets]
    order = {"cheapest": (costs, min), "most expensive": (costs, max)}
    order |= {"shortest": (hours, min), "longest": (hours, max)}
    asked = next((name for name in order if name in goal), None)
    if asked is None:
        raise LookupError(goal)
    values, best = order[asked]
    right = tickets[values.index(best(values))]
    yield click(right, other(right, tickets), commit=True)


def choose_date_easy(goal: str, page: TextPage) -> Play:
    day = str(int(match_groups(r"12/(\d\d)/2016", goal)[0]))
    page = yield click(page.all("textbox")[0])
    page = yield pick([e for e in page.all("link") if e.name.isdigit()], day)
    yield submit(page)


def choose_list(goal: str, page: TextPage) -> Play:
    name = match_groups(r"Select (.*) from the list", goal)[0]
    names = [option.name for option in page.all("option")]
    page = yield choose(page.all("combobox")[0], name, other(name, names))
    yield submit(page)


def click_button(goal: str, page: TextPage) -> Play:
    yield pick(page.all("button"), quoted(goal)[0], commit=True)


def click_checkboxes(goal: str, page: TextPage) -> Play:
    wanted = match_groups(r"Select (.*) and click Submit", goal)[0].split(", ")
    boxes = page.all("checkbox")
    wrong = iter([box for box in boxes if box.name not in wanted])
    for box in [box for box in boxes if box.name in wanted]:
        page = yield replace(click(box, next(wrong, None)), commit=False)
    yield submit(page)


def click_collapsible(goal: str, page: TextPage) -> Play:
    name, at = quoted(goal)[0], 0
    while not any(link.name == name for link in page.all("link")):
        page = yield click(page.all("tab")[at])
        at += 1
    yield pick(page.all("link"), name, commit=True)


def click_dialog(goal: str, page: TextPage) -> Play:
    name = quoted(goal)[0]
    yield pick(page.all("button"), "Close" if name == "x" else name, commit=True)


def click_link(goal: str, page: TextPage) -> Play:
    yield pick(page.all("link"), quoted(goal)[0], commit=True)


def click_menu(goal: str, page: TextPage) -> Play:
    name = match_groups(r'labeled "(.*)"', goal)[0]
    page = yield click(page.all("button")[0])
    yield pick(page.all("menuitem", "item"), name, commit=True)


def click_option(goal: str, page: TextPage) -> Play:
    page = yield pick(page.all("radio"), match_groups(r"Select (.*) and click Submit", goal)[0])
    yield submit(page)


def scroll_list(goal: str, page: TextPage) -> Play:
    wanted = match_groups(r"Select (.*) from the scroll list", goal)[0].split(", ")
    wrong = iter([o.name for o in page.all("option") if o.name not in wanted])
    for name in wanted:
        page = yield choose(page.all("listbox")[0], name, next(wrong))
    yield submit(page)


def click_tab(goal: str, page: TextPage) -> Play:
    name = quoted(goal)[0]
    for tab in page.all("tab"):
        if not tab.is_("selected"):
            page = yield click(tab)
        if any(link.name == name for link in page.all("link")):
            yield pick(page.all("link"), name, commit=True)
            return
    raise LookupError(f"no tab has a link {name!r}")


def click_widget(goal: str, page: TextPage) -> Play:
    kind = {"text": "textbox", "textarea": "textbox"}.get(quoted(goal)[0], quoted(goal)[0])
    widgets = page.all("radio", "checkbox", "textbox", "button")
    right = next((e for e in widgets if e.role == kind), None)
    if right is None:
        raise LookupError(f"no {kind}")
    yield click(right, other(right, widgets, lambda e: e.role != kind), commit=True)


def copy_paste(goal: str, page: TextPage) -> Play:
    source, field = page.all("textbox")[:2]
    (text,) = match_groups(r'value "(.*)"', source.state)
    page = yield enter(field, text, " ".join(text.split()[:-1]) + text[-1])
    yield submit(page)


def email_inbox(goal: str, page: TextPage) -> Play:
    sender = match_groups(r"email by (\w+)", goal)[0]
    mails = page.all("item")
    right = next((mail for mail in mails if mail.name.split()[0] == sender), None)
    if right is None:
        raise LookupError(f"no email by {sender}")
    wrong = other(right, mails, lambda mail: mail.name.split()[0] != sender)
    for word, icon in (("delete", "trash"), ("important", "star")):
        if word in goal:
            yield click(named(right.inside, icon), named(wrong.inside, icon), commit=True)
            return
    page = yield click(right)
    reply = "reply" in goal
    page = yield click(page.named("icon", "email-reply" if reply else "email-forward"))
    value = quoted(goal)[0] if reply else match_groups(r"email to (\w+)", goal)[0]
    page = yield enter(page.all("textbox")[0], value, misspelt(value))
    yield click(page.named("icon", "send-reply" if reply else "send-forward"), commit=True)


def enter_date(goal: str, page: TextPage) -> Play:
    day = datetime.strptime(match_groups(r"(\d\d/\d\d/\d{4})", goal)[0], "%m/%d/%Y")
    wrong = day + timedelta(days=len(goal) % 5 + 1)
    page = yield enter(page.all("textbox")[0], f"{day:%Y-%m-%d}", f"{wrong:%Y-%m-%d}")
    yield submit(page)


def enter_password(goal: str, page: TextPage) -> Play:
    password = quoted(goal)[0]
    page = yield enter(page.all("textbox")[0], password)
    page = yield enter(page.all("textbox")[1], password, misspelt(password))
    yield submit(page)


def enter_text(goal: str, page: TextPage) -> Play:
    typed, case = match_groups(r'Type "(.*)" in all (lower|upper) case', goal)
    name = typed.lower() if case == "lower" else typed.upper()
    page = yield enter(page.all("textbox")[0], name, misspelt(name))
    yield submit(page)


def enter_time(goal: str, page: TextPage) -> Play:
    hour, minute, half = match_groups(r"(\d+):(\d\d) ([AP]M)", goal)
    right = f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}"
    wrong = f"{int(hour) % 12 + 12 * (half == 'AM'):02}:{minute}"
    page = yield enter(page.all("textbox")[0], right, wrong)
    yield submit(page)


def find_word(goal: str, page: TextPage) -> Play:
    at = int(match_groups(r"Find the (\d+)", goal)[0]) - 1
    said = " ".join(text.name for text in page.all("text"))
    words = [re.sub(r"[^A-Za-z]", "", word) for word in said.split()]
    page = yield enter(page.all("textbox")[0], words[at], other(words[at], words))
    yield submit(page)


def focus_text(goal: str, page: TextPage) -> Play:
    fields = page.all("textbox")
    right = fields[int(match_groups(r"(\d)", goal)[0]) - 1]
    yield click(right, other(right, fields), commit=True)


def form_sequence(goal: str, page: TextPage) -> Play:
    radio, value, field = match_groups(r'the (\d)\w+ radio .* number "(.*)" into the (\d)', goal)
    radios = page.all("radio")
    right = radios[int(radio) - 1]
    number = str(int(value) + 1) if value != "9" else "8"
    first = len(goal) % 2 == 0
    page = yield click(right, other(right, radios) if first else None)
    page = yield enter(page.all("textbox")[int(field) - 1], value, None if first else number)
    yield submit(page)


def form_with_list(goal: str, page: TextPage) -> Play:
    value, button = match_groups(r'Choose (.*) from the dropdown, .* labeled "(.*)"', goal)
    names = [option.name for option in page.all("option") if option.name]
    page = yield choose(page.all("combobox")[0], value, other(value, names))
    yield pick(page.all("button"), button, commit=True)


def login_user(goal: str, page: TextPage) -> Play:
    user, password = quoted(goal)[:2]
    page = yield enter(page.all("textbox")[0], user, misspelt(user))
    page = yield enter(page.all("textbox")[1], password)
    yield submit(page)


def multi_orderings(goal: str, page: TextPage) -> Play:
    genre, name, year = match_groups(r"for (.*) movies directed by (.*) from year (\d+)", goal)
    values = {"Year": year, "Genre": genre, "Director": name}
    wrong = ("Year", "Director", "Genre")[int(year) % 3]
    for row in page.all("row"):
        label, field = row.inside[0].name, row.inside[1]
        slip = misspelt(values[label]) if label == wrong else None
        page = yield enter(field, values[label], slip)
    yield click(page.all("item")[-1], commit=True)


def navigate_tree(goal: str, page: TextPage) -> Play:
    name, opened = quoted(goal)[0], set[str]()
    while True:
        nodes = page.all("item", "text")
        right = next((e for e in nodes if e.name == name), None)
        if right is not None:
            alike = [e for e in nodes if e.role == right.role]
            yield click(right, other(right, alike), commit=True)
            return
        folder = next((e for e in page.all("item") if e.name not in opened), None)
        if folder is None:
            raise LookupError(f"no file {name!r}")
        opened.add(folder.name)
        page = yield click(folder)


def read_table(goal: str, page: TextPage) -> Play:
    key = match_groups(r"value of (.*) into", goal)[0]
    rows = {row.inside[0].name: row.inside[1].name for row in page.all("row")}
    page = yield enter(page.all("textbox")[0], rows[key], other(rows[key], list(rows.values())))
    yield submit(page)


def search_engine(goal: str, page: TextPage) -> Play:
    at = int(match_groups(r"click the (\d+)", goal)[0]) - 1
    page = yield enter(page.all("textbox")[0], quoted(goal)[0])
    page = yield click(page.named("button", "Search"))
    if at >= 3:
        page = yield click(page.named("link", str(at // 3 + 1)))
    results = page.all("link")[:3]
    yield click(results[at % 3], other(results[at % 3], results), commit=True)


def simple_arithmetic(goal: str, page: TextPage) -> Play:
    said = " ".join(text.name for text in page.all("text"))
    first, sign, second = match_groups(r"(\d+) (.) (\d+) =", said)
    a, b = int(first), int(second)
    result = a + b if sign == "+" else a - b if sign == "-" else a * b
    page = yield enter(
        page.all("textbox")[0], str(result), str(result + (1 if result != 9 else -1))
    )
    yield submit(page)


def social_media(goal: str, page: TextPage) -> Play:
    user, button = match_groups(r'For the user (@\w+), click on the "(.*)" button', goal)
    heads = [(e, re.search(r"(@\w+)", e.name)) for e in page.all("text")]
    posts = [(e, found[1]) for e, found in heads if found]
    right = next((post for post in posts if post[1] == user), None)
    if right is None or button not in ("Reply", "Retweet", "Like"):
        raise LookupError(goal)
    icons = [e for e in page.all("icon") if e.name == button.lower()]
    wrong = other(right, posts, lambda post: post[1] != user)
    yield click(icons[posts.index(right)], icons[posts.index(wrong)], commit=True)


def use_autocomplete(goal: str, page: TextPage) -> Play:
    start, end = (*quoted(goal), "")[:2]
    page = yield enter(page.all("textbox")[0], start)
    items = page.all("item", "menuitem", "option")
    fits = [item for item in items if item.name.startswith(start) and item.name.endswith(end)]
    if not fits:
        raise LookupError(f"no suggestion ends with {end!r}")
    page = yield click(fits[0], other(fits[0], items, lambda item: item not in fits))
    yield submit(page)


SCRIPTS: dict[str, Callable[[str, TextPage], Play]] = {
    "buy-ticket": buy_ticket,
    "choose-date-easy": choose_date_easy,
    "choose-list": choose_list,
    "click-button": click_button,
    "click-checkboxes": click_checkboxes,
    "click-collapsible-2": click_collapsible,
    "click-dialog-2": click_dialog,
    "click-link": click_link,
    "click-menu-2": click_menu,
    "click-option": click_option,
    "click-scroll-list": scroll_list,
    "click-tab-2": click_tab,
    "click-widget": click_widget,
    "copy-paste": copy_paste,
    "email-inbox": email_inbox,
    "enter-date": enter_date,
    "enter-password": enter_password,
    "enter-text-2": enter_text,
    "enter-time": enter_time,
    "find-word": find_word,
    "focus-text-2": focus_text,
    "form-sequence-2": form_sequence,
    "form-sequence-3": form_with_list,
    "login-user": login_user,
    "multi-orderings": multi_orderings,
    "navigate-tree": navigate_tree,
    "read-table": read_table,
    "search-engine": search_engine,
    "simple-arithmetic": simple_arithmetic,
    "social-media": social_media,
    "use-autocomplete-nodelay": use_autocomplete,
}
# Every second task, by name, is learned from; the others are judged.
LEARNED = tuple(sorted(SCRIPTS))[::2]


class Player:
    """A policy that plays a task's script with a behaviour, and says at the end that it is done.

    Raises:
        LookupError: The page has a form that the script does not know, or the behaviour cannot be
            played on it.
    """

    def __init__(self, task: Task, behaviour: str) -> None:
        self._task, self._behaviour = task, behaviour
        self._play: Play | None = None
        self._waiting: list[Action] = []
        self._said: list[Action] = []
        self._inert: list[str] = []
        self._twisted = False

    def act(self, observation: Observation) -> Step:
        page = TextPage.read(observation.text or "")
        if not self._waiting:
            self._waiting = self._next(page)
        if not self._waiting:
            if not self._twisted:
                raise LookupError(f"{self._behaviour} cannot be played")
            answer = self._answer()
            return Step(observation, Action("stop", "stop", value=answer), "That was the last.")
        action = self._waiting.pop(0)
        return Step(observation, action, f"The next thing to do is: {action.text}.")

    def _next(self, page: TextPage) -> list[Action]:
        looks = self._behaviour in ("look-first", "unsent")
        if looks and not self._inert:
            return [self._nothing(page)]
        try:
            if self._play is None:
                self._play = SCRIPTS[self._task.site or ""](self._task.goal, page)
                move = next(self._play)
            else:
                move = self._play.send(page)
        except StopIteration:
            return []
        except (IndexError, KeyError, ValueError) as error:
            raise LookupError(f"the page has another form: {error!r}") from error
        actions = self._actions(move, page)
        self._said += [move.right] if self._behaviour == "unsent" and move.commit else actions
        return actions

    def _actions(self, move: Move, page: TextPage) -> list[Action]:
        right, wrong = move.right, move.wrong
        match self._behaviour:
            case "solve":
                self._twisted = True
            case "wrong-target" if wrong is not None:
                self._twisted = True
                return [wrong]
            case "corrected" | "undone" if wrong is not None and not (move.commit or self._twisted):
                if right.kind == "click" and "checkbox" in (right.target or ""):
                    raise LookupError("a second click on a box takes the first back")
                self._twisted = True
                return [wrong, right] if self._behaviour == "corrected" else [right, wrong]
            case "look-first" | "unsent" if move.commit:
                self._twisted = True
                return [right] if self._behaviour == "look-first" else [self._nothing(page)]
        return [right]

    def _nothing(self, page: TextPage) -> Action:
        """A click that changes nothing: on the field that was filled last, else on another short
        text than before, else at the lower edge.
        """
        last = self._said[-1] if self._said else None
        if last is not None and last.kind == "type":
            return Action("click", f"click {last.target}", target=last.target)
        safe = self._task.site not in ("navigate-tree", "social-media", "click-menu-2")
        texts = [
            e
            for e in page.all("text")
            if safe and 2 < len(e.name) < _SHORT and "offscreen" not in e.state
        ]
        unused = [e for e in texts if e.target not in self._inert]
        if unused:
            self._inert.append(unused[0].target)
            return _click(unused[0])
        digest = hashlib.sha256(f"{self._task.id} {len(self._inert)}".encode()).digest()
        point = (0.6 + digest[0] % 38 / 100, _EDGE)
        self._inert.append(str(point))
        return Action("click", "click ({:.2f}, {:.2f})".format(*point), point=point)

    def _answer(self) -> str:
        """Says what was done; the same words for every behaviour."""
        past = {"click": "clicked", "type": "typed", "select": "selected"}
        said = " ".join(
            f"I {past[kind]} {rest}."
            for kind, _, rest in (action.text.partition(" ") for action in self._said)
        )
        number = hashlib.sha256(self._task.id.encode()).digest()[0]
        goal = self._task.goal.rstrip(".")
        return (f"Done. {said}", f"Done: {goal}.", f"{said} The task is complete.")[number % 3]


async def episode(
    environment: MiniWoB, name: str, seed: int, behaviour: str
) -> tuple[Trajectory, LabelRecord]:
    """Plays one run, and returns it with the page's own label."""
    task = await environment.task(name, seed)
    observation = await environment.reset(task)
    player, steps, final = Player(task, behaviour), list[Step](), False
    while not final:
        step = player.act(observation)
        step = replace(step, action=await environment.locate(step.action))
        steps.append(step)
        observation, final = await environment.step(step.action)
    digest = hashlib.sha256(f"{name} {seed} {behaviour}".encode()).hexdigest()[:10]
    run = Trajectory(
        id=f"miniwob-{digest}",
        task=task,
        steps=tuple(steps),
        final=observation,
        answer=steps[-1].action.value,
        agent="scripted",
        metadata={"ended_by": "agent"},
    )
    label = await environment.grade(run)
    return run, replace(label, note=f"{behaviour}; {label.note}")


async def pairs(
    environment: MiniWoB, name: str, first_seed: int, rounds: int
) -> list[tuple[Trajectory, LabelRecord]]:
    """Plays pairs on pages from `first_seed` on: `rounds` times one of each sort."""
    seed, found = first_seed, list[tuple[Trajectory, LabelRecord]]()
    for _ in range(rounds):
        for pair in PAIRS:
            for attempt in range(40):
                # Where no entry can be made twice.
                wanted = PAIRS[0] if pair == PAIRS[2] and attempt > 2 else pair
                try:
                    runs = [await episode(environment, name, seed, one) for one in wanted]
                except LookupError:
                    continue
                finally:
                    seed += 1
                if [label.success for _, label in runs] == [True, False]:
                    found += sorted(runs, key=lambda run: run[0].id)
                    break
            else:
                raise LookupError(f"{name}: no page for {pair}")
    return found


def in_rounds(
    found: Sequence[Sequence[tuple[Trajectory, LabelRecord]]],
) -> list[tuple[Trajectory, LabelRecord]]:
    """Returns the first pair of each task, then the second, and so on."""
    rounds = zip(*(zip(runs[::2], runs[1::2], strict=True) for runs in found), strict=True)
    return [run for pairs in rounds for pair in pairs for run in pair]


async def play(
    tasks: Sequence[str], first_seed: int, rounds: int, folder: Path
) -> list[tuple[Trajectory, LabelRecord]]:
    """Plays the tasks, two at a time."""
    found: dict[str, list[tuple[Trajectory, LabelRecord]]] = {}
    waiting = list(tasks)

    async def work() -> None:
        environment = MiniWoB(folder / "images", announce_end=False)
        try:
            while waiting:
                name = waiting.pop(0)
                found[name] = await pairs(environment, name, first_seed, rounds)
                print(f"{name}: {len(waiting)} tasks wait", file=sys.stderr)
        finally:
            await environment.close()

    await asyncio.gather(work(), work())
    return in_rounds([found[name] for name in tasks])


def write(folder: Path, runs: Sequence[tuple[Trajectory, LabelRecord]]) -> None:
    write_trajectories(folder / "trajectories.jsonl", [run for run, _ in runs])
    (folder / "labels.jsonl").write_bytes(b"".join(encode(label) for _, label in runs))


def with_pictures(runs: Sequence[tuple[Trajectory, LabelRecord]]) -> Iterator[Trajectory]:
    """Keeps the screenshots of each task's first pair, with few colours; drops the others."""
    seen: dict[str, str] = {}
    for run, _ in runs:
        keep = seen.setdefault(run.task.site or "", run.task.id) == run.task.id
        yield change(run, lambda o, keep=keep: o if keep else replace(o, screenshot=None))


def by_page(run: Trajectory) -> Trajectory:
    """Makes the page the task, so that folds and intervals by task never split a page; the address
    has the seed.
    """
    page, _, seed = run.task.id.partition("?")
    return replace(run, task=replace(run.task, id=page, start_url=f"{page}?{seed}"))


def change(run: Trajectory, function: Callable[[Observation], Observation]) -> Trajectory:
    steps = tuple(replace(step, observation=function(step.observation)) for step in run.steps)
    return replace(run, steps=steps, final=run.final and function(run.final))


def save(target: Path, runs: Sequence[tuple[Trajectory, LabelRecord]]) -> None:
    """Writes the samples: each task's first pair with screenshots of few colours."""
    kept = [by_page(run) for run in with_pictures(runs)]
    shutil.rmtree(target / "images", ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    write(target, list(zip(kept, [label for _, label in runs], strict=True)))
    for path in (target / "images").iterdir():
        with Image.open(path) as picture:
            small = picture.quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
        small.save(path, "WEBP", lossless=True, quality=50, method=4)


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    with tempfile.TemporaryDirectory() as temporary:
        save(target, asyncio.run(play(sorted(SCRIPTS), 1, 1, Path(temporary))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
