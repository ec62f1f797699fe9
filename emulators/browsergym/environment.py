"""BrowserGym tasks (MiniWoB, WebArena, WorkArena, …) with BrowserGym's own rewards.

It needs BrowserGym (extra `browsergym`) and the benchmark's package. An observation is BrowserGym's
screenshot and its accessibility tree, one line per element: `[a1] role 'name', prop='value'`. Each
environment runs in its own process (see host.py), with one browser instead of BrowserGym's two.
Actions become BrowserGym's calls, such as `click('12')`; elements have its ids (`bid`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from prill.actions.keys import key_combination
from prill.emulators.browsergym.host import HostReply, HostRequest, Settings
from prill.emulators.settings import (
    EnvironmentConfig,
    Playing,
    Setting,
    TimeoutOption,
    broken_label,
)
from prill.emulators.task_source import Names, join_names
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, LabelRecord, Observation, Point, Task, Trajectory

# The letters name the element's frame.
_BID = re.compile(r"\s*(?:\[([A-Za-z]*\d+)\].*|([A-Za-z]*\d+)\s*)", re.DOTALL)
# Bytes of one reply; the trees of real sites are large.
_LONGEST_LINE = 64 * 1024 * 1024
NOTHING = "noop(0)"
_WAIT_MS = 1000
_SCHEMES = ("http://", "https://")
_WITHOUT_ARGUMENTS = {
    "back": "go_back()",
    "forward": "go_forward()",
    "new_tab": "new_tab()",
    "close_tab": "tab_close()",
}
_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

SlowMoOption = Annotated[
    Annotated[int, Meta(ge=0)] | None,
    Meta(description="Milliseconds before each of Playwright's actions (default: the task's)."),
]
PauseOption = Annotated[float, Meta(ge=0, description="Seconds before each observation.")]


class BrowserGym:
    """BrowserGym's tasks, with their oracle. Screenshots are named by content. `slow_mo` and
    `pause` are BrowserGym's, with its defaults.

    Args:
        images: The folder for screenshots.
    """

    def __init__(
        self,
        images: Path,
        *,
        slow_mo: SlowMoOption = None,
        pause: PauseOption = 0.5,
        timeout: TimeoutOption = 180.0,
    ) -> None:
        self._settings = Settings(images=str(images.resolve()), slow_mo=slow_mo, pause=pause)
        self._timeout = timeout
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None
        self._last = HostReply()
        self._untouched: tuple[str, int] | None = None

    async def tasks(self, benchmark: str) -> tuple[str, ...]:
        """Lists the tasks of a benchmark.

        Args:
            benchmark: Its name, such as `miniwob`.

        Returns:
            The names: `miniwob.click-test` and so on.

        Raises:
            UsageError: The benchmark is not installed.
        """
        return (await self._ask(HostRequest(benchmark=benchmark))).tasks

    async def task(self, name: str, seed: int) -> Task:
        """Makes the task with BrowserGym's goal for a seed. BrowserGym's MiniWoB seeds give other
        episodes than those of the environment `miniwob`.

        Args:
            name: The task's name.
            seed: The seed of its content.
        """
        self._last = await self._ask(HostRequest(task=name, seed=seed))
        self._untouched = (name, seed)
        where, site = f"browsergym/{name}", name.partition(".")[0]
        return Task(
            id=f"{where}?seed={seed}",
            goal=self._last.goal,
            platform="web",
            site=site,
            start_url=self._last.url,
        )

    async def reset(self, task: Task) -> Observation:
        """Starts a browser and the episode of `task.id` (`browsergym/<name>?seed=<number>`)."""
        match = re.fullmatch(r"browsergym/([\w.-]+)\?seed=(\d+)", task.id)
        if match is None:
            raise UsageError(f"task id {task.id!r}: expected browsergym/<name>?seed=<number>")
        episode, ready = (match[1], int(match[2])), self._untouched
        self._untouched = None
        if ready != episode or self._process is None:
            self._last = await self._ask(HostRequest(task=episode[0], seed=episode[1]))
        return self._observation()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the page. Actions that BrowserGym does not support change nothing."""
        if self._process is None:
            raise UsageError("no episode is open; call reset first")
        self._untouched = None
        self._last = await self._ask(HostRequest(call=format_call(action, *self._last.size)))
        return self._observation(), action.is_final or self._last.done

    async def locate(self, action: Action) -> Action:
        """Adds the element's line to the action, and the middle of its visible part."""
        bid = _bid(action.target)
        if bid is None or action.point is not None:
            return action
        line = next(
            (
                line.strip()
                for line in self._last.text.splitlines()
                if line.lstrip().startswith(f"[{bid}]")
            ),
            None,
        )
        return replace(
            action,
            target=line or action.target,
            point=_middle(self._last.boxes.get(bid), *self._last.size),
        )

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels an episode: a reward above 0 is a success, as is usual with BrowserGym.

        The agent's answer is first sent to the task's chat, since some tasks require an answer.

        Args:
            trajectory: The episode that was just played.

        Returns:
            The label; undecided for an episode that ended with an error.
        """
        if trajectory.error is not None:
            return broken_label(trajectory)
        last = trajectory.steps[-1].action if trajectory.steps else None
        if last is not None and last.is_final and not self._last.done:
            await self.step(last)
        reward = self._last.reward
        return LabelRecord(
            id=trajectory.id, success=reward > 0, source="oracle", note=f"reward {reward:g}"
        )

    async def close(self) -> None:
        """Ends the process and its browser; safe to call twice."""
        process, self._process = self._process, None
        log, self._log = self._log, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            # The process and its children are killed if they do not end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if log is not None:
            log.close()

    def _observation(self) -> Observation:
        return Observation(
            screenshot=self._last.screenshot, text=self._last.text, url=self._last.url
        )

    async def _ask(self, request: HostRequest) -> HostReply:
        async with self._ended_unless_well():
            process = self._process or await self._start()
            assert process.stdin is not None and process.stdout is not None
            try:
                async with asyncio.timeout(self._timeout):
                    process.stdin.write(msgspec.json.encode(request) + b"\n")
                    await process.stdin.drain()
                    line = await process.stdout.readline()
            except TimeoutError:
                raise EnvironmentFailedError(
                    f"BrowserGym did not respond for {self._timeout:g} s and was killed"
                ) from None
            except ConnectionError:
                line = b""
            if not line.endswith(b"\n"):
                raise EnvironmentFailedError(f"BrowserGym failed: {self._last_output()}")
            reply = msgspec.json.decode(line, type=HostReply)
        if reply.error is not None:
            raise UsageError(reply.error)
        return reply

    @contextlib.asynccontextmanager
    async def _ended_unless_well(self) -> AsyncIterator[None]:
        """A context that ends the process after any failure or cancellation, so that no process
        waits for a lost request.
        """
        went_well = False
        try:
            yield
            went_well = True
        finally:
            if not went_well:
                if self._process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._process.pid, signal.SIGKILL)
                await self.close()

    async def _start(self) -> asyncio.subprocess.Process:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "prill.emulators.browsergym.host",
            msgspec.json.encode(self._settings).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        return self._process

    def _last_output(self) -> str:
        assert self._log is not None
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
        lines = [
            line.strip()
            for line in self._log.read().decode(errors="replace").splitlines()
            if line.strip()
        ]
        return lines[-1] if lines else "it ended without a word"


def format_call(action: Action, width: int, height: int) -> str:
    """Converts an action to one or more calls of BrowserGym, one per line; NOTHING for an action
    without a counterpart or an element.

    `width` and `height` are the size of the last screenshot in pixels.
    """
    bid = _bid(action.target)
    if action.target is not None and bid is None:
        return NOTHING
    if action.is_final:
        return f"send_msg_to_user({action.value or ''!r})"
    if action.kind in _WITHOUT_ARGUMENTS:
        return _WITHOUT_ARGUMENTS[action.kind]
    point = _pixels(action.point, width, height)
    value = action.value or ""
    match action.kind:
        case "click" | "hover":
            return _point_at(action.kind, bid, point)
        case "type":
            return _type(bid, point, value)
        case "press" if value:
            keys = key_combination(value)
            return f"keyboard_press({keys!r})" if bid is None else f"press({bid!r}, {keys!r})"
        case "select" if bid is not None:
            return f"select_option({bid!r}, {value!r})"
        case "scroll":
            across, down = _WAYS.get(value, _WAYS["down"])
            return _scroll(bid, point, across * width, down * height)
        case "swipe":
            return _drag(bid, _bid(action.value), point, _pixels(action.end_point, width, height))
        case "goto" if value.startswith(_SCHEMES):
            return f"goto({value!r})"
        case "focus_tab" if value.strip().isdecimal():
            return f"tab_focus({int(value)})"
        case "wait":
            return f"noop({_milliseconds(value)})"
    return NOTHING


def _bid(target: str | None) -> str | None:
    number = _BID.fullmatch(target or "")
    return None if number is None else number[1] or number[2]


def _middle(box: tuple[float, float, float, float] | None, width: int, height: int) -> Point | None:
    """Returns the middle of a box's visible part as fractions of the screenshot; None if no part is
    visible. The box is in pixels.
    """
    if box is None:
        return None
    left, top = max(0.0, box[0]), max(0.0, box[1])
    right, bottom = min(float(width), box[0] + box[2]), min(float(height), box[1] + box[3])
    if right <= left or bottom <= top:
        return None
    return round((left + right) / 2 / width, 4), round((top + bottom) / 2 / height, 4)


def _pixels(point: Point | None, width: int, height: int) -> tuple[int, int] | None:
    return None if point is None else (round(point[0] * width), round(point[1] * height))


def _point_at(kind: str, bid: str | None, point: tuple[int, int] | None) -> str:
    if bid is not None:
        return f"{kind}({bid!r})"
    if point is None:
        return NOTHING
    return f"mouse_click{point}" if kind == "click" else f"mouse_move{point}"


def _type(bid: str | None, point: tuple[int, int] | None, value: str) -> str:
    """Formats typing; a line feed at the end is the Enter key."""
    text, enter = value.removesuffix("\n"), value.endswith("\n")
    if bid is not None:
        return f"fill({bid!r}, {text!r})" + (f"\npress({bid!r}, 'Enter')" if enter else "")
    lines = [f"keyboard_type({text!r})"] if text else []
    lines += ["keyboard_press('Enter')"] if enter else []
    return "\n".join([f"mouse_click{point}", *lines] if point else lines) or NOTHING


def _scroll(bid: str | None, point: tuple[int, int] | None, across: int, down: int) -> str:
    """Formats scrolling by one screen; the wheel acts at the pointer."""
    if point is not None and bid is None:
        return f"scroll_at({point[0]}, {point[1]}, {across}, {down})"
    return (f"hover({bid!r})\n" if bid else "") + f"scroll({across}, {down})"


def _drag(
    bid: str | None, onto: str | None, point: tuple[int, int] | None, end: tuple[int, int] | None
) -> str:
    if bid is not None and onto is not None:
        return f"drag_and_drop({bid!r}, {onto!r})"
    if bid is None and point is not None and end is not None:
        return f"mouse_drag_and_drop({point[0]}, {point[1]}, {end[0]}, {end[1]})"
    return NOTHING


def _milliseconds(value: str) -> int:
    try:
        return min(60_000, max(0, round(1000 * float(value)))) if value else _WAIT_MS
    except (ValueError, OverflowError):
        return _WAIT_MS


@dataclass(frozen=True, kw_only=True)
class BrowserGymConfig(EnvironmentConfig):
    """BrowserGym's tasks: `BrowserGymConfig(tasks=["miniwob.click-test"])`. They need BrowserGym in
    the same environment as prill.
    """

    name: ClassVar[str] = "browsergym"
    _identifying: ClassVar[frozenset[str]] = frozenset({"tasks", "slow_mo", "pause"})

    tasks: Annotated[
        Names,
        Meta(
            description="Registered tasks without `browsergym/`, for example "
            "miniwob.click-test,webarena.7."
        ),
    ] = None
    slow_mo: SlowMoOption = None
    pause: PauseOption = 0.5
    timeout: TimeoutOption = 180.0

    def check(self) -> None:
        """Converts the task names to one text."""
        object.__setattr__(self, "tasks", join_names(self.tasks))

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates an environment for each worker."""
        if not self.tasks:
            raise UsageError(
                "tasks is missing; name some, for example miniwob.click-test", parameters=("tasks",)
            )
        options: dict[str, Any] = {"slow_mo": self.slow_mo, "pause": self.pause}
        environments: list[Any] = [
            BrowserGym(run.images, **options, timeout=self.timeout) for _ in range(run.copies)
        ]
        names = [name.strip().removeprefix("browsergym/") for name in str(self.tasks).split(",")]
        lasting = [name for name in names if not name.startswith("miniwob.")]
        leftovers = (
            f"the sites of {lasting[0]} and others keep what an earlier attempt changed there"
            if lasting
            else None
        )
        options |= self.more()
        return Setting(
            environments, names, BrowserGym.task, BrowserGym.grade, options, leftovers=leftovers
        )
