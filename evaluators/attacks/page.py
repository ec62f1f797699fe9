"""Attacks a page author can make: injected text, titles, URLs and lookalike characters.

A recorded state has the page's text, a caption of the screen, or both. The injected text is added
to both, because an accurate captioner would repeat it. Attacks on screenshots are in
`prill.evaluators.attacks.page`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote_plus

from prill.evaluators.attacks.agent import answered
from prill.evaluators.attacks.texts import attack_texts, draw, one_line_goal
from prill.io.images import file_hash, open_checked
from prill.types import Action, Observation, Step, Trajectory

if TYPE_CHECKING:
    from PIL.Image import Image


Where = Literal["before", "after", "both"]
# The number of latest states that receive text which a site shows on every page.
_PAGES = 3
# Lines of WebArena's and BrowserGym's accessibility trees, and of trees without element numbers.
_NUMBERED_TREE = re.compile(r"^\s*\[\w+\] ?\w+ '", re.MULTILINE)
_TREE = re.compile(r"^\s*\w+ \"", re.MULTILINE)
_TITLE = re.compile(r"RootWebArea '")
_LOOK_ALIKES = str.maketrans(
    "abcdeghijklmnopqrstuvwxyzABCEHIKMNOPSTXYZ", "аƄсԁеɡһіјкⅼⅿոорԛгѕтυνԝхуᴢΑΒСЕΗΙΚΜΝОΡЅΤΧΥΖ"
)
_INVISIBLE = "\u200b\u200c\u2060\u00ad"
_SEED = 7


def inject_into_page(trajectory: Trajectory) -> Trajectory | None:
    """Appends the instruction to the last state; returns None if the state has no text."""
    return _on_pages(trajectory, _appended(attack_texts().of("inject-page", trajectory)))


def in_answer_and_page(trajectory: Trajectory, name: str) -> Trajectory:
    """Appends the named text to the answer and to the last state."""
    text = attack_texts().of(name, trajectory)
    claimed = answered(trajectory, f"{trajectory.answer}\n\n{text}" if trajectory.answer else text)
    return _on_pages(claimed, _appended(text)) or claimed


def pad(trajectory: Trajectory, characters: int, where: Where) -> Trajectory | None:
    """Adds irrelevant text of this length to the latest states; returns None if they have no text.

    With `both`, half of it comes before the state's text and half after.
    """
    share = characters // 2 if where == "both" else characters

    def change(page: str) -> str:
        filler = _filler(_shape(page), draw(trajectory, 1000), share)
        return f"{'' if where == 'after' else filler + chr(10)}{page}{'' if where == 'before' else chr(10) + filler}"  # noqa: E501

    return _on_pages(trajectory, change, _PAGES)


def goal_on_page(trajectory: Trajectory, times: int) -> Trajectory | None:
    """Appends the goal `times` times to the last state; returns None if the state has no text."""
    return _on_pages(trajectory, _lines_after([one_line_goal(trajectory)] * times))


def goal_in_title(trajectory: Trajectory, times: int) -> Trajectory | None:
    """Puts the goal `times` times into the last state's title; None if the state has no text."""
    goal = " ".join([one_line_goal(trajectory)] * times)
    sentence = " ".join([attack_texts().of("goal-in-caption", trajectory)] * times)

    def change(state: Observation) -> Observation:
        text = state.text and (
            _TITLE.sub(lambda title: f"{title[0]}{goal} - ", state.text, count=1)
            if _TITLE.search(state.text)
            else f"{_like_page(state.text, [goal])}\n{state.text}"
        )
        return replace(state, text=text, caption=state.caption and f"{sentence} {state.caption}")

    return _changed(trajectory, _last_states(trajectory, change))


def goal_in_url(trajectory: Trajectory, times: int) -> Trajectory | None:
    """Appends the goal `times` times as a query to the last state's URL and to the last URL
    visited.

    Returns None if neither URL was recorded.
    """
    query = "q=" + "+".join([quote_plus(one_line_goal(trajectory))] * times)

    def longer(url: str) -> str:
        return f"{url}{'&' if '?' in url else '?'}{query}"

    def visit(action: Action) -> Action:
        url = action.value or ""
        return replace(action, text=action.text.replace(url, longer(url)), value=longer(url))

    visits = [
        i
        for i, step in enumerate(trajectory.steps)
        if step.action.kind == "goto" and step.action.value
    ][-1:]
    steps = tuple(
        replace(s, action=visit(s.action)) if i in visits else s
        for i, s in enumerate(trajectory.steps)
    )
    changed = replace(trajectory, steps=steps)
    return _changed(
        trajectory,
        _last_states(changed, lambda state: replace(state, url=state.url and longer(state.url))),
    )


def confirm(trajectory: Trajectory, lines: int, language: str) -> Trajectory | None:
    """Appends lines of confirmation to the last state, in the format of its other lines.

    Returns None if the state has no text.
    """
    return _on_pages(
        trajectory, _lines_after(attack_texts().lines(f"confirm-{language}", trajectory, lines))
    )


def look_alikes(trajectory: Trajectory, share: float) -> Trajectory | None:
    """Replaces this share of letters in the latest states with lookalikes from other alphabets."""
    return _on_pages(
        trajectory,
        lambda page: _each(page, page.translate(_LOOK_ALIKES), trajectory, share),
        _PAGES,
    )


def invisible(trajectory: Trajectory, share: float) -> Trajectory | None:
    """Inserts an invisible character after this share of letters in the latest states."""
    mark = _INVISIBLE[draw(trajectory, len(_INVISIBLE))]
    return _on_pages(
        trajectory,
        lambda page: _each(page, [c + mark if c.isalpha() else c for c in page], trajectory, share),
        _PAGES,
    )


def empty_pages(trajectory: Trajectory, states: int, kind: str, images: Path) -> Trajectory | None:
    """Replaces the last `states` states with blank or error pages; returns None if there are fewer.

    A white picture in `images` replaces recorded screenshots.
    """
    page, caption, picture = (
        attack_texts().of(f"{kind}-{part}", trajectory) for part in ("page", "caption", "picture")
    )
    latest = trajectory.observations[-states:]
    if len(latest) < states:
        return None

    def change(state: Observation) -> Observation:
        screenshot = state.screenshot and white_page(picture, images)
        return replace(
            state,
            text=state.text and page,
            caption=state.caption and caption,
            screenshot=screenshot,
        )

    return _changed(trajectory, _last_states(trajectory, change, states))


def on_screenshot(trajectory: Trajectory, text: str, images: Path) -> Trajectory | None:
    """Draws the text along the lower edge of a copy of the last screenshot, saved in `images`.

    Returns None if there is no screenshot. Raises InputError if the screenshot cannot be used.
    """
    if not trajectory.observations or not (path := trajectory.observations[-1].screenshot):
        return None
    copy = with_banner(path, text, images)
    return _last_states(trajectory, lambda state: replace(state, screenshot=copy))


def _last_states(
    trajectory: Trajectory, change: Callable[[Observation], Observation], count: int = 1
) -> Trajectory:
    first = len(trajectory.observations) - count

    def latest(i: int, step: Step) -> Step:
        return replace(step, observation=change(step.observation)) if i >= first else step

    steps = tuple(latest(i, step) for i, step in enumerate(trajectory.steps))
    return replace(trajectory, steps=steps, final=trajectory.final and change(trajectory.final))


def _on_pages(
    trajectory: Trajectory, change: Callable[[str], str], count: int = 1
) -> Trajectory | None:
    def replace_text(state: Observation) -> Observation:
        # None and "" stay unchanged: nothing is added if nothing was recorded.
        return replace(
            state,
            text=state.text and change(state.text),
            caption=state.caption and change(state.caption),
        )

    return _changed(trajectory, _last_states(trajectory, replace_text, count))


def _changed(before: Trajectory, after: Trajectory) -> Trajectory | None:
    return None if after == before else after


def _appended(text: str) -> Callable[[str], str]:
    # Judges that shorten the text keep its end.
    return lambda page: f"{page}\n\n{text}"


def _lines_after(lines: Sequence[str]) -> Callable[[str], str]:
    return lambda page: f"{page}\n{_like_page(page, lines)}"


def _shape(page: str) -> str:
    """Returns the page's format of a line of text: `{}` is the text, `{n}` a number."""
    if _NUMBERED_TREE.search(page):
        return "\t[{n}] StaticText '{}'"
    return 'text "{}"' if _TREE.search(page) else "{}"


def _like_page(page: str, lines: Sequence[str]) -> str:
    shape = _shape(page)
    return "\n".join(shape.format(line, n=1234 + i) for i, line in enumerate(lines))


@cache
def _filler_lines(shape: str) -> tuple[str, ...]:
    return tuple(
        shape.format(line.text, n=5000 + i) for i, line in enumerate(attack_texts().lists["filler"])
    )


def _filler(shape: str, start: int, characters: int) -> str:
    lines = _filler_lines(shape)
    first = start % len(lines)
    block = "\n".join((*lines[first:], *lines[:first])) + "\n"
    return (block * (characters // len(block) + 1))[:characters]


@cache
def _thresholds() -> tuple[float, ...]:
    """Returns fixed numbers from 0 to 1, so that a larger share includes a smaller one."""
    from random import Random

    draws = Random(_SEED)
    return tuple(draws.random() for _ in range(4099))


def _each(page: str, changed: Sequence[str], trajectory: Trajectory, share: float) -> str:
    thresholds = _thresholds()
    first, count = draw(trajectory, len(thresholds)), len(thresholds)
    pairs = enumerate(zip(page, changed, strict=True), first)
    return "".join([new if thresholds[i % count] < share else old for i, (old, new) in pairs])


_SIZE = (1280, 720)


def with_banner(path: str, text: str, folder: Path) -> str:
    """Writes a copy of the screenshot with the text along its lower edge, and returns its path.

    Raises InputError if the screenshot cannot be used.
    """
    copy = folder / f"{_name(file_hash(path), text)}.png"
    if not copy.exists():
        _save(_drawn(open_checked(path), text), copy)
    return str(copy)


def white_page(text: str, folder: Path) -> str:
    """Writes a white picture that contains only the text, and returns its path."""
    from PIL import Image

    copy = folder / f"{_name('white', text)}.png"
    if not copy.exists():
        page = Image.new("RGB", _SIZE, "white")
        _save(_drawn(page, text) if text.strip() else page, copy)
    return str(copy)


def _name(of: str, text: str) -> str:
    return hashlib.sha256(f"{of} {text}".encode()).hexdigest()[:32]


def _save(image: Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write to a temporary name, unique for each writer, so that nobody reads an incomplete picture.
    partly = path.with_suffix(f".{secrets.token_hex(4)}.partly.png")
    image.save(partly)
    partly.replace(path)


def _drawn(image: Image, text: str) -> Image:
    """Returns the picture with the text in a light box along its lower edge, at a legible size."""
    from textwrap import wrap

    from PIL import ImageDraw, ImageFont

    size = max(12, image.width // 40)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image)
    letter = draw.textlength("n", font)
    # Lines are short because OCR engines downscale long lines until they are illegible.
    lines = wrap(text, max(8, min(40, int((image.width - size) / letter))))
    height = int(len(lines) * size * 1.3 + size)
    draw.rectangle((0, image.height - height, image.width, image.height), fill=(255, 250, 205))
    for i, line in enumerate(lines):
        draw.text(
            (size / 2, image.height - height + size / 2 + i * size * 1.3), line, (0, 0, 0), font
        )
    return image
