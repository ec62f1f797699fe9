"""Renders a tab as text and maps element numbers in that text back to elements.

The accessibility tree with the box of every node is read over CDP, with a few calls per page and
none per node. Frames are included, also those of other sites, which have their own process and CDP
session; frames of third sites inside those are not.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prill.actions.elements import read_target
from prill.emulators.browser.actions import BrowserElement
from prill.emulators.browser.axtree import Box, Key, Node, TreeLine, build_lines, with_hint, written
from prill.emulators.browser.hints import STYLES, Hint, read_hints

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page


# CDP messages as JSON objects, for internal use.
Raw = Mapping[str, Any]
# Seconds, so that a slow advert does not delay the page around it.
_GUEST_TIMEOUT = 2.0
_EVERYWHERE = (-1e9, -1e9, 2e9, 2e9)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes in document order, their CDP sessions by frame, and the frames' documents.

    `owners` maps each frame in its own process to the element of the page that shows it.
    """

    nodes: tuple[Node, ...]
    sessions: Mapping[str, CDPSession]
    documents: Mapping[str, str]
    owners: Mapping[str, Key]


@dataclass(slots=True)
class _Process:
    """The frames of a page that one CDP session covers, as CDP describes them."""

    session: CDPSession
    documents: dict[str, str]
    trees: dict[str, Sequence[Raw]]
    snapshot: Raw

    @property
    def main(self) -> str:
        return next(iter(self.documents))


async def _process(session: CDPSession, styles: Sequence[str]) -> _Process:
    frames, snapshot = await asyncio.gather(
        session.send("Page.getFrameTree"),
        session.send("DOMSnapshot.captureSnapshot", {"computedStyles": list(styles)}),
    )
    documents = dict(_documents(frames["frameTree"]))
    trees = await asyncio.gather(
        *(session.send("Accessibility.getFullAXTree", {"frameId": frame}) for frame in documents)
    )
    return _Process(
        session,
        documents,
        dict(zip(documents, (tree["nodes"] for tree in trees), strict=True)),
        snapshot,
    )


def _documents(tree: Raw) -> Iterator[tuple[str, str]]:
    yield tree["frame"]["id"], tree["frame"]["loaderId"]
    for child in tree.get("childFrames", ()):
        yield from _documents(child)


def _has(tree: Sequence[Raw], number: int) -> bool:
    return any(node.get("backendDOMNodeId") == number for node in tree)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame's document: boxes by backend node id (None: no size), scroll, frames and hints by
    node.
    """

    boxes: Mapping[int, Box | None]
    scroll: tuple[float, float]
    inner: Mapping[int, str]
    hints: Mapping[int, Hint]


def _drawn_frames(process: _Process, *, hinted: bool) -> dict[str, _Frame]:
    strings, documents = process.snapshot["strings"], process.snapshot["documents"]
    names = [strings[document["frameId"]] for document in documents]
    views = {}
    for name, document in zip(names, documents, strict=True):
        numbers, layout = document["nodes"]["backendNodeId"], document["layout"]
        boxes: dict[int, Box | None] = dict.fromkeys(numbers)
        boxes |= {
            numbers[node]: tuple(box)
            for node, box in zip(layout["nodeIndex"], layout["bounds"], strict=True)
        }
        inner = document["nodes"].get("contentDocumentIndex", {"index": [], "value": []})
        frames = {
            numbers[node]: names[place]
            for node, place in zip(inner["index"], inner["value"], strict=True)
        }
        hints: Mapping[int, Hint] = {}
        if hinted:
            hints, labels = read_hints(document, strings)
            boxes |= {number: (b[0], b[1], b[2], b[3]) for number, b in labels.items()}
        scroll = (document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0))
        views[name] = _Frame(boxes, scroll, frames, hints)
    return views


def _nodes(
    processes: Sequence[_Process], owners: Mapping[str, Key], *, hinted: bool
) -> Iterator[Node]:
    """Yields all nodes in document order; a frame's nodes follow the element that shows it."""
    views = {
        name: view
        for process in processes
        for name, view in _drawn_frames(process, hinted=hinted).items()
    }
    trees = {
        name: {node["nodeId"]: node for node in tree}
        for process in processes
        for name, tree in process.trees.items()
    }
    documents = {
        name: document for process in processes for name, document in process.documents.items()
    }
    guests = {(owner.frame, owner.number): name for name, owner in owners.items()}
    todo: list[tuple[str, str, int, tuple[float, float], Box, Box | None]] = []

    def enter(frame: str, depth: int, corner: tuple[float, float], clip: Box) -> None:
        if trees.get(frame):
            scroll = views[frame].scroll if frame in views else (0.0, 0.0)
            todo.append(
                (
                    frame,
                    next(iter(trees[frame])),
                    depth,
                    (corner[0] - scroll[0], corner[1] - scroll[1]),
                    clip,
                    None,
                )
            )

    enter(processes[0].main, 0, (0.0, 0.0), _EVERYWHERE)
    while todo:
        frame, id, depth, corner, clip, around = todo.pop()
        raw = trees[frame].pop(id, None)
        if raw is None:  # A few nodes are repeated.
            continue
        number: int | None = raw.get("backendDOMNodeId")
        view = views.get(frame)
        # The inner text of a field is not part of the snapshot; it has the field's box.
        box = (
            _placed(view.boxes[number], corner)
            if view is not None and number is not None and number in view.boxes
            else around
        )
        key = Key(frame, documents[frame], number) if number is not None else None
        hint = view.hints.get(number) if view is not None and number is not None else None
        node = _node(raw, key, depth, _cut(box, clip))
        yield with_hint(node, raw.get("description", {}).get("value"), hint) if hinted else node
        for child in reversed(raw.get("childIds", ())):
            if child in trees[frame]:
                todo.append((frame, child, depth + 1, corner, clip, box))
        inside = (
            None
            if number is None
            else guests.get((frame, number)) or (view.inner.get(number) if view else None)
        )
        if inside is not None and box is not None:
            enter(inside, depth + 1, (box[0], box[1]), _cut(box, clip) or (0.0, 0.0, 0.0, 0.0))


def _node(raw: Raw, key: Key | None, depth: int, box: Box | None) -> Node:
    exposed = "name" in raw and not raw.get("ignored")
    states = (
        (state["name"], state["value"]["value"])
        for state in raw.get("properties", ())
        if "value" in state["value"]
    )
    return Node(
        key,
        depth,
        str(raw.get("role", {}).get("value", "")),
        str(raw["name"].get("value", "")) if exposed else None,
        tuple((name, str(value)) for name, value in states),
        box,
    )


def _placed(box: Box | None, corner: tuple[float, float]) -> Box | None:
    return None if box is None else (box[0] + corner[0], box[1] + corner[1], box[2], box[3])


def _cut(box: Box | None, clip: Box) -> Box | None:
    """Returns the part of a box inside its frame."""
    if box is None or clip is _EVERYWHERE:
        return box
    left, top = max(box[0], clip[0]), max(box[1], clip[1])
    right, low = min(box[0] + box[2], clip[0] + clip[2]), min(box[1] + box[3], clip[1] + clip[3])
    return (left, top, max(0.0, right - left), max(0.0, low - top))


class PageView:
    """The view of an episode's tabs. Elements are numbered in the order in which they first appear;
    numbers are unique and reproducible.
    """

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Page | Frame, CDPSession] = WeakKeyDictionary()
        self._numbers: dict[Key, int] = {}
        self._keys: dict[str, Key] = {}
        self._lines: list[TreeLine] = []
        self._snapshot: Snapshot | None = None
        self._styles: Sequence[str] = STYLES

    async def session(self, page: Page) -> CDPSession:
        """Returns the session of the page's main frame."""
        session = await self._session(page, page)
        assert session is not None
        return session

    async def read(
        self,
        page: Page,
        window: tuple[float, float] | None,
        max_tokens: int | None,
        *,
        as_webarena: bool = False,
    ) -> str:
        """Reads the current accessibility tree (see axtree.py). Waits while the page navigates.

        `as_webarena` leaves out the hints (see hints.py).
        """
        self._styles = () if as_webarena else STYLES
        snapshot = await self._read(page)
        self._snapshot, self._lines = (
            snapshot,
            await asyncio.to_thread(build_lines, snapshot.nodes, window),
        )
        return await asyncio.to_thread(written, self._lines, self._number, max_tokens)

    async def picture(self, page: Page) -> bytes:
        """Takes a PNG of the window, without waiting for fonts or frames as Playwright does."""
        session = await self.session(page)
        return await capture_png(page, session, {"optimizeForSpeed": True})

    def find(self, target: str) -> BrowserElement | None:
        """Finds a target's element by number, else by role and name; None if there is none now."""
        named = read_target(target)
        if named.number is not None:
            return self._element(self._keys.get(named.number))
        if named.label is None:
            return None
        label = " ".join(named.label)
        return self._element(
            next(
                (line.key for line in self._lines if f"{line.text} ".startswith(f"{label} ")), None
            )
        )

    def line(self, target: str) -> str | None:
        """Returns the line of a target's element; None if it is not in the current text."""
        number = read_target(target).number
        key = None if number is None else self._keys.get(number)
        return next((f"[{number}] {line.text}" for line in self._lines if line.key == key), None)

    def line_around(self, element: BrowserElement) -> str | None:
        """Returns the line of the element, or of its nearest ancestor with one, except the page."""
        snapshot, lines = self._snapshot, {line.key: line for line in self._lines}
        above: list[Node] = []
        for node in snapshot.nodes if snapshot is not None else ():
            while above and above[-1].depth >= node.depth:
                above.pop()
            above.append(node)
            if (
                node.key is None
                or node.key.number != element.number
                or not self._answers(element.session, node.key)
            ):
                continue
            neighbours = (
                lines[other.key]
                for other in reversed(above)
                if other.key in lines and other.role != "RootWebArea"
            )
            return next((f"[{self._number(line.key)}] {line.text}" for line in neighbours), None)
        return None

    def _answers(self, session: CDPSession, key: Key) -> bool:
        return self._snapshot is not None and self._snapshot.sessions[key.frame] is session

    def _element(self, key: Key | None) -> BrowserElement | None:
        snapshot = self._snapshot
        if key is None or snapshot is None or snapshot.documents.get(key.frame) != key.document:
            return None
        return BrowserElement(
            snapshot.sessions[key.frame], key.number, self._element(snapshot.owners.get(key.frame))
        )

    def _number(self, key: Key) -> int:
        if key not in self._numbers:
            number = self._numbers[key] = len(self._numbers) + 1
            self._keys[str(number)] = key
        return self._numbers[key]

    async def _capture(self, page: Page) -> Snapshot:
        """Reads the current page. Raises Playwright's errors, also if the page navigates."""
        main = await _process(await self.session(page), self._styles)
        processes = [main]
        owners: dict[str, Key] = {}
        hinted = bool(self._styles)
        children = [frame for frame in page.frames if frame is not page.main_frame]
        if len(children) >= len(main.documents):
            for frame in children:
                guest = await self._guest(page, frame, main)
                if guest is not None:
                    processes.append(guest[0])
                    owners[guest[0].main] = guest[1]
        return Snapshot(
            # In a thread, since a page may have hundreds of thousands of nodes, and other episodes
            # run concurrently.
            await asyncio.to_thread(lambda: tuple(_nodes(processes, owners, hinted=hinted))),
            {frame: process.session for process in processes for frame in process.documents},
            {
                frame: document
                for process in processes
                for frame, document in process.documents.items()
            },
            owners,
        )

    async def _guest(self, page: Page, frame: Frame, main: _Process) -> tuple[_Process, Key] | None:
        """Reads a frame of another site, and the element that shows it; None for other frames, and
        for one that does not answer.
        """
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(_GUEST_TIMEOUT):
                session = await self._session(page, frame)
                if session is None:
                    return None
                process = await _process(session, self._styles)
                owner = (await main.session.send("DOM.getFrameOwner", {"frameId": process.main}))[
                    "backendNodeId"
                ]
        except (Error, TimeoutError):
            # The frame navigates, and may get another process.
            self._sessions.pop(frame, None)
            return None
        place = next((name for name, tree in main.trees.items() if _has(tree, owner)), None)
        return None if place is None else (process, Key(place, main.documents[place], owner))

    async def _session(self, page: Page, frame: Page | Frame) -> CDPSession | None:
        """Returns a frame's own session; None for a frame that its page's session covers."""
        from playwright.async_api import Error

        if frame not in self._sessions:
            try:
                self._sessions[frame] = await page.context.new_cdp_session(frame)
            except Error as error:
                if "does not have a separate CDP session" not in error.message:
                    raise
                return None
        return self._sessions[frame]

    async def _read(self, page: Page) -> Snapshot:
        from playwright.async_api import Error

        while True:
            try:
                return await self._capture(page)
            except Error as error:
                # A frame was removed or the page navigated meanwhile. A page that keeps navigating
                # hits the caller's time limit.
                if page.is_closed() or not re.search(
                    "frame|context|detached|node", error.message, re.IGNORECASE
                ):
                    raise
                # A frame that navigated to another site has another process now.
                self._sessions.clear()
                await asyncio.sleep(0.05)


async def capture_png(page: Page, session: CDPSession, options: Mapping[str, Any]) -> bytes:
    """Takes a screenshot by CDP, with the options of `Page.captureScreenshot`, once the page has
    been drawn. The caller bounds the time.
    """
    from playwright.async_api import Error

    while True:
        try:
            shot = await session.send("Page.captureScreenshot", dict(options))
            return base64.b64decode(shot["data"])
        except Error as error:
            # A tab that opened just now may not have been drawn yet.
            if "Unable to capture" not in error.message:
                raise
            await page.bring_to_front()
            await asyncio.sleep(0.05)
