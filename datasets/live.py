"""Records runs of other agents live: browser-use through its callbacks, and anything that drives a
Playwright page.

A run in progress is in the folder's `partial/`, rewritten at each step; a finished one is in
`trajectories.jsonl` (see `prill.episodes.run_folder`). The callbacks are those of
`browser_use/agent/service.py` (browser-use/browser-use, 0.1 to 0.13): one before the actions of a
reply are executed, one with the whole history once the agent is done. The recorded page calls are
those of Playwright's trace (`prill.datasets.formats.playwright`).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec

from prill.datasets.formats.browser_use import History, HistoryItem, HistoryReader, HistoryState
from prill.datasets.live_page import MAX_TEXT, PageRecorder, play, play_async
from prill.datasets.reading.images import ImageFolder, ImageStore, RecordImages
from prill.datasets.reading.records import as_record, iso_date
from prill.episodes.run_folder import RunFolder
from prill.errors import UsageError
from prill.io.lines import valid_unicode
from prill.types import Action, Observation, Step, Task, Trajectory

_log = logging.getLogger(__name__)
P = TypeVar("P")
# The open folders, with the ids in progress in each: a folder has one writer.
_folders: dict[Path, tuple[RunFolder, set[str]]] = {}
_lock = threading.RLock()


def record(
    folder: str | os.PathLike[str],
    task: str | Task,
    *,
    id: str | None = None,
    agent: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Recording:
    """Records one run of your own agent in a browser, live.

    Args:
        folder: The run folder: trajectories.jsonl, images/ and partial/. Runs of one process may
            share it.
        task: The task, or its goal as text.
        id: The trajectory's id. None: a timestamp with random letters.
        agent: The agent's name.
        metadata: Additional metadata to record, as JSON values.

    Returns:
        The recording: a context manager (`async with` for a page of Playwright's async API) with
        the callbacks `on_step` and `on_done` for browser-use, and `page` for Playwright.

    Raises:
        UsageError: The folder cannot be written, another process records to it, or it already has a
            run of that id.
    """
    name = id or f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    task = task if isinstance(task, Task) else Task(goal=task, platform="web")
    start = Trajectory(
        id=name,
        task=replace(task, goal=valid_unicode(task.goal)),
        agent=agent,
        metadata={"date": iso_date(time.time()), **(metadata or {})},
    )
    opened = _opened(Path(folder), name)
    with ExitStack() as on_failure:
        on_failure.callback(_leave, opened, name)
        opened.note(start)  # fails now if the folder cannot be written
        on_failure.pop_all()
    return Recording(start, opened)


class Recording:
    """A recording of one run, made by `prill.record`.

    A recording failure never reaches the agent: the first is logged, and `failures` counts them.

    Args:
        trajectory: The run so far.
        folder: The run folder.
    """

    def __init__(self, trajectory: Trajectory, folder: RunFolder) -> None:
        self.trajectory, self.failures = trajectory, 0
        self._folder, self._closed = folder, False
        self._images = ImageStore(folder.path / "images", temporary=False).new()
        self._thought: str | None = None
        self._answer: str | None = None
        self._pages = PageRecorder(self._images, self._guarded, self._note_step, self._note_final)
        self._replies: list[tuple[Any, HistoryItem]] = []

    async def on_step(self, state: Any, output: Any, number: int) -> None:
        """Records a step, as browser-use's `register_new_step_callback`: the browser's state before
        the reply's actions, the model's reply, and the number of the step.
        """
        with self._guarded():
            self._replies.append((output, self._reply(state, output)))
            self._note_history(tuple(item for _, item in self._replies))

    async def on_done(self, history: Any) -> None:
        """Ends the recording, as browser-use's `register_done_callback`.

        Call it with `agent.history` if the agent was stopped before it was done. The agent's claim
        of success goes to `metadata["claimed_success"]`; its judge's verdict is not recorded.
        """
        with self._guarded():
            items = _read(history.model_dump(), History).history
            seen = zip(items, history.history, strict=True)
            whole = tuple(self._with_state(item, raw.model_output) for item, raw in seen)
            self._note_history(whole)
            done = [one for item in whole for one in item.result if one.is_done]
            if done and done[-1].success is not None:
                self._claim(done[-1].success)
        self.close()

    def page(self, page: P) -> P:
        """Returns a wrapper of a page that records each call as a step, with the observation before
        it.

        Calls on its locators, frames, keyboard and mouse are recorded, too. Calls that only wait or
        read are not, nor is `evaluate`.

        Args:
            page: A page of Playwright's sync or async API.

        Returns:
            The wrapper to use instead of the page.
        """
        self._pages.page = page
        return cast(P, self._pages.wrap(page, page))

    def thought(self, text: str) -> None:
        """Records the agent's thought before its next action."""
        self._thought = text

    def answer(self, text: str, *, success: bool | None = None) -> None:
        """Records the agent's answer to the user, as the last step. `success` is the agent's claim
        of success, which is never a label.
        """
        self._answer = text
        if success is not None:
            self._claim(success)

    def close(self) -> None:
        """Ends the run and writes its line; safe to call twice.

        It takes a last screenshot of a sync page, so call it while the browser is open.
        """
        try:
            if self._should_look and not self._pages.is_async:
                play(self._pages.look_last())
        finally:
            self._end()

    async def aclose(self) -> None:
        """Ends the run like `close`, for a page of the async API."""
        try:
            if self._should_look and self._pages.is_async:
                await play_async(self._pages.look_last())
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._note_error(kind)
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._note_error(kind)
        await self.aclose()

    def _note_error(self, kind: type[BaseException] | None) -> None:
        if kind is not None and not self._closed:  # its message may hold secrets
            self.trajectory = replace(self.trajectory, error=f"the run ended with {kind.__name__}")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on
            self.failures += 1
            if self.failures == 1:
                _log.warning(
                    "%s: recording %s failed, and the agent goes on (%s: %s); further failures are "
                    "counted in `failures`",
                    self._folder.path,
                    self.trajectory.id,
                    type(error).__name__,
                    error,
                )

    def _claim(self, success: bool) -> None:
        metadata = {**self.trajectory.metadata, "claimed_success": success}
        self.trajectory = replace(self.trajectory, metadata=metadata)

    @property
    def _should_look(self) -> bool:
        is_seen = self._closed or self.trajectory.final is not None
        return self._pages.page is not None and not is_seen

    def _note_step(self, seen: Observation, action: Action) -> None:
        step, self._thought = Step(seen, action, self._thought), None
        steps = (*self.trajectory.steps, step)
        self._note(replace(self.trajectory, steps=steps, final=None))

    def _note_final(self, seen: Observation) -> None:
        self._note(replace(self.trajectory, final=seen))

    def _note(self, trajectory: Trajectory) -> None:
        if self._closed:
            raise UsageError(f"the recording of {trajectory.id} is closed; start another")
        self.trajectory = trajectory
        with _lock:
            self._folder.note(trajectory)

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        run, answer = self.trajectory, self._answer
        if answer is not None:
            answer = valid_unicode(answer)
            seen = run.final or Observation()
            step = Step(seen, Action("answer", f"answer({answer})", value=answer), self._thought)
            self.trajectory = replace(run, steps=(*run.steps, step), final=None, answer=answer)
        with self._guarded(), _lock:
            self._folder.keep(self.trajectory, None)
        with self._guarded():
            _leave(self._folder, self.trajectory.id)

    # Callbacks of browser-use

    def _reply(self, state: Any, output: Any) -> HistoryItem:
        """Returns the reply in the form of the history, before there are results."""
        record = output.model_dump(mode="json", exclude_none=True)
        dom = getattr(state, "dom_state", state)  # before 0.6 the state had these fields itself
        elements = getattr(dom, "selector_map", None) or {}
        show = getattr(dom, "llm_representation", None)
        if show is None and (tree := getattr(dom, "element_tree", None)) is not None:
            show = tree.clickable_elements_to_string
        page = show()[:MAX_TEXT] if show else ""
        above = getattr(state, "pixels_above", 0) or getattr(
            getattr(state, "page_info", None), "pixels_above", 0
        )
        shot = getattr(state, "screenshot", None)
        values = [next(iter(action.values()), None) or {} for action in record["action"]]
        item = {
            "model_output": record,
            "result": [{} for _ in record["action"]],
            "state": {
                "url": state.url,
                "screenshot_path": self._images.add(b64decode(shot)) if shot else None,
                "interacted_element": [_element(elements.get(one.get("index"))) for one in values],
            },
            "state_message": f"<page_info>{above / 1000} pages above</page_info>"
            f"<browser_state>{page}</browser_state>",
        }
        return _read(item, HistoryItem)

    def _with_state(self, item: HistoryItem, output: Any) -> HistoryItem:
        """Returns a history item with the recorded state before it, if there is one."""
        for index, (one, seen) in enumerate(self._replies):
            if output is not None and (one is output or one == output):
                del self._replies[index]
                state = replace(
                    seen.state,
                    interacted_element=item.state.interacted_element
                    or seen.state.interacted_element,
                )
                return replace(
                    item, state=state, state_message=item.state_message or seen.state_message
                )
        return item

    def _note_history(self, items: tuple[HistoryItem, ...]) -> None:
        reader = _HistoryReader(self._folder.path, self._images)
        read = reader.trajectory(self.trajectory.id, History(items))
        self._note(
            replace(
                self.trajectory,
                agent=self.trajectory.agent or read.agent,
                steps=read.steps,
                final=read.final,
                answer=read.answer,
                error=read.error,
            )
        )


class _HistoryReader(HistoryReader):
    """Reads a live history, whose screenshots are in the run folder or are copied there."""

    def __init__(self, folder: Path, images: ImageFolder) -> None:
        super().__init__(folder, RecordImages(ImageStore(folder / "images", temporary=False)))
        self._copies = images

    def picture(self, state: HistoryState) -> str | None:
        path = state.screenshot_path
        if path and Path(path).is_relative_to(self._folder):
            return path
        found = super().picture(state)
        if found is None or Path(found).is_relative_to(self._folder):
            return found
        return self._copies.add(Path(found).read_bytes())


def _read(value: object, type: type[P]) -> P:
    """Returns a browser-use model object as a record, ready for JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return as_record(msgspec.json.decode(valid_unicode(text)), type)


def _element(node: Any) -> dict[str, Any] | None:
    """Returns a page element in the history's form (browser_use/dom/views.py, also before 0.6)."""
    if node is None:
        return None
    shown, spoken = getattr(node, "snapshot_node", None), getattr(node, "ax_node", None)
    box, window = getattr(shown, "bounds", None), getattr(node, "viewport_info", None)
    center = getattr(getattr(node, "viewport_coordinates", None), "center", None)
    return {
        "node_name": getattr(node, "node_name", None),
        "tag_name": getattr(node, "tag_name", None),
        "attributes": dict(node.attributes or {}),
        "ax_name": getattr(spoken, "name", None),
        "bounds": box and {name: getattr(box, name) for name in ("x", "y", "width", "height")},
        "viewport_coordinates": center and {"center": {"x": center.x, "y": center.y}},
        "viewport_info": window and {"width": window.width, "height": window.height},
    }


def _opened(path: Path, id: str) -> RunFolder:
    with _lock:
        key = path.resolve()
        folder, ids = _folders[key] if key in _folders else (RunFolder(path), set())
        _folders[key] = folder, ids
        if id in folder or id in ids:
            if not ids:
                _folders.pop(key)[0].close()
            raise UsageError(f"{path}: already contains a run {id!r}; choose another id")
        ids.add(id)
        return folder


def _leave(folder: RunFolder, id: str) -> None:
    with _lock:
        ids = _folders[folder.path][1]
        ids.discard(id)
        if not ids:
            _folders.pop(folder.path)
            folder.close()
