"""Records the calls on a Playwright page, for `prill.datasets.live`.

A wrapper forwards calls to the page and records those that Playwright's trace has
(`prill.datasets.formats.playwright`). The same generators serve both APIs: they yield the sync
API's results, or the awaitables of the async API.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import wraps
from typing import Any

from prill.datasets.formats.playwright import METHODS, PageCall, Place, page_action
from prill.datasets.reading.images import ImageFolder
from prill.io.lines import valid_unicode
from prill.types import Action, Observation

MAX_TEXT = 200_000  # characters of a page's text: about 50,000 tokens
_LOOK_TIMEOUT = 5_000.0  # milliseconds, for a screenshot or a page's text
_BOX_TIMEOUT = 500.0  # milliseconds, for an element that is missing so far
_PATIENCE = 3  # consecutive failed observations of a page, after which none is made
_WRAPPED = frozenset(
    {
        "ElementHandle",
        "Frame",
        "FrameLocator",
        "Keyboard",
        "Locator",
        "Mouse",
        "Page",
        "Touchscreen",
    }
)
# Methods with another name in the trace, and those that are not steps here: a script mostly reads,
# and pages are closed at the end.
_SAME = {
    "mouseDblclick": "dblclick",
    "pressSequentially": "type",
    "clear": "fill",
    "setChecked": "check",
    "dragTo": "dragAndDrop",
}
_NO_STEPS = frozenset({"close", "newPage", "evaluateExpression"})
_SELECTOR = re.compile(r"selector='(.*)'>\Z", re.DOTALL)
Steps = Generator[Any, Any, Any]


class PageRecorder:
    """Observes pages and records their calls.

    Args:
        images: The folder for screenshots.
        guarded: A context manager that catches and counts failures.
        note: Called with each observation and action.
        note_last: Called with the final state.
    """

    def __init__(
        self,
        images: ImageFolder,
        guarded: Callable[[], AbstractContextManager[None]],
        note: Callable[[Observation, Action], None],
        note_last: Callable[[Observation], None],
    ) -> None:
        self._images, self._guarded, self._note, self._note_last = images, guarded, note, note_last
        self.page: Any = None  # the last one acted on
        self._failed: str | None = None  # the error of the previous action
        self._lost = 0

    @property
    def is_async(self) -> bool:
        """Returns whether the page is of the async API."""
        return inspect.iscoroutinefunction(getattr(self.page, "screenshot", None))

    def wrap(self, value: Any, page: Any) -> Any:
        """Returns a wrapper for a Playwright object; other values unchanged."""
        if isinstance(value, list):
            return [self.wrap(one, page) for one in value]
        name = type(value).__name__
        return _Recorded(value, page or value, self) if name in _WRAPPED else value

    def method(self, target: Any, name: str, function: Any, page: Any) -> Any:
        """Returns a method that is recorded if it is a step."""
        method, own = _method_name(target, name), type(target).__name__
        element = target if own in ("Locator", "ElementHandle") else None

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(map(_bare, args))
            kwargs = {key: _bare(value) for key, value in kwargs.items()}

            def steps() -> Steps:
                params: dict[str, Any] = {}
                if method in METHODS and method not in _NO_STEPS:
                    with self._guarded():
                        params = _params(method, element, function, args, kwargs)
                        yield from self._before(page, method, element, params)
                    result = yield from self._attempt(lambda: function(*args, **kwargs))
                else:
                    if own == "Page" and name == "close" and target is self.page:
                        yield from self.look_last()
                    result = yield function(*args, **kwargs)
                return self.wrap(result, None if type(result).__name__ == "Page" else page)

            is_async = inspect.iscoroutinefunction(function)
            return play_async(steps()) if is_async else play(steps())

        return call

    def look_last(self) -> Steps:
        """Observes the page at the end of the run."""
        with self._guarded():
            self._note_last((yield from self._look(self.page)))

    def _before(self, page: Any, method: str, element: Any, params: dict[str, Any]) -> Steps:
        self.page = page
        seen = yield from self._look(page)
        point, size = yield from self._place(page, element, params)
        action = page_action(PageCall(0.0, method, params, point), size)
        value, target = (text and valid_unicode(text) for text in (action.value, action.target))
        action = replace(action, text=valid_unicode(action.text), value=value, target=target)
        self._note(seen, action)

    def _attempt(self, call: Callable[[], Any]) -> Steps:
        with ExitStack() as stack:
            stack.push(self._note_failure)
            return (yield call())

    def _note_failure(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._failed = valid_unicode(str(error).partition("\n")[0])

    def _look(self, page: Any) -> Steps:
        shot, texts = None, [self._failed]
        self._failed = None
        self._lost += 1
        if self._lost <= _PATIENCE:
            with self._guarded():
                shot = self._images.add((yield page.screenshot(scale="css", timeout=_LOOK_TIMEOUT)))
                self._lost = 0
            with self._guarded():
                body = page.locator("body")
                show = getattr(body, "aria_snapshot", None) or body.inner_text  # since 1.49
                text = yield show(timeout=_LOOK_TIMEOUT)
                texts.append(valid_unicode(text[:MAX_TEXT]))
        page_text = "\n\n".join(text for text in texts if text)
        return Observation(shot, text=page_text or None, url=valid_unicode(page.url))

    def _place(self, page: Any, element: Any, params: Mapping[str, Any]) -> Steps:
        """Returns the middle of a call's element, and the viewport's size, in CSS pixels."""
        size = page.viewport_size
        window = (float(size["width"]), float(size["height"])) if size else None
        selector = params.get("selector", params.get("source"))
        if element is None and isinstance(selector, str):
            element = page.locator(selector)
        if element is None or window is None:
            return None, window
        box = None
        with suppress(Exception):  # it is not there yet, so its position is unknown
            if hasattr(element, "first"):
                box = yield element.first.bounding_box(timeout=_BOX_TIMEOUT)
            else:
                box = yield element.bounding_box()
        middle = box and Place(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return middle or None, window


class _Recorded:
    """Wraps a Playwright object; its class, for `isinstance`, is that object's."""

    __slots__ = ("_held",)

    def __init__(self, target: Any, page: Any, recorder: PageRecorder) -> None:
        object.__setattr__(self, "_held", (target, page, recorder))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(_bare(self))

    def __repr__(self) -> str:
        return repr(_bare(self))

    def __getattr__(self, name: str) -> Any:
        target, page, recorder = object.__getattribute__(self, "_held")
        value = getattr(target, name)
        if name.startswith("_"):
            return value
        if inspect.ismethod(value):
            return recorder.method(target, name, value, page)
        return recorder.wrap(value, None if type(value).__name__ == "Page" else page)


def play(steps: Steps) -> Any:
    """Runs a generator that yields results of the sync API."""
    try:
        value = next(steps)
        while True:
            value = steps.send(value)
    except StopIteration as end:
        return end.value


async def play_async(steps: Steps) -> Any:
    """Runs a generator that yields awaitables or plain values."""
    try:
        waiting = next(steps)
        while True:
            try:
                value = await waiting if inspect.isawaitable(waiting) else waiting
            except Exception as error:  # noqa: BLE001 - it is raised in the generator
                waiting = steps.throw(error)
            else:
                waiting = steps.send(value)
    except StopIteration as end:
        return end.value


def _bare(value: Any) -> Any:
    return object.__getattribute__(value, "_held")[0] if type(value) is _Recorded else value


def _camel_case(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def _method_name(target: Any, name: str) -> str:
    """Returns the method's name in the trace: `keyboardPress` for `page.keyboard.press`."""
    word, group = _camel_case(name), type(target).__name__.lower()
    if group in ("keyboard", "mouse", "touchscreen"):
        word = f"{group}{word[0].upper()}{word[1:]}"
    return _SAME.get(word, word)


def _params(
    method: str, element: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a call by the trace's names."""
    params: dict[str, Any] = {} if element is None else {"selector": _selector(element)}
    for name, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
        several = value if isinstance(value, list | tuple) else [value]
        if method == "selectOption" and name in ("value", "index", "label"):
            params["options"] = [{"valueOrLabel": str(one)} for one in several]
        elif method == "setInputFiles" and name == "files":
            params["localPaths"] = [
                one["name"] if isinstance(one, dict) else os.fspath(one) for one in several
            ]
        else:
            is_plain = isinstance(value, str | int | float | bool)
            params[_camel_case(name)] = value if is_plain else _selector(value)
    return {"value": "", **params} if method == "fill" else params


def _selector(element: Any) -> str:
    found = _SELECTOR.search(repr(element))
    return found[1] if found else str(element)[:200]
