"""Tasks of BrowserGym (MiniWoB, WebArena, WorkArena, AssistantBench, …) in prill's loop, with BrowserGym's own rewards.

BrowserGym has to be installed where prill is (extra `browsergym`), and the benchmark's package with it. An observation is its
screenshot and its accessibility tree, a line an element: `[a1] role 'name', prop='value'`. Each environment is a process of
its own (see browsergym_host.py), with one browser instead of BrowserGym's two.
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
from pathlib import Path
from typing import IO

import msgspec

from prill.emulators.browsergym_calls import call_of
from prill.emulators.browsergym_host import Reply, Request, Settings
from prill.errors import EnvironmentFailure, UsageError
from prill.types import Action, LabelRecord, Observation, Task, Trajectory

# Bytes of one reply: the trees of real sites are long.
_LONGEST_LINE = 64 * 1024 * 1024


class BrowserGym:
    """An environment and its oracle. Screenshots are written below `images`, named by content.

    `slow_mo` (milliseconds that Playwright waits before each of its acts; None: as the task says, 100 in MiniWoB) and `pause`
    (seconds before the state is looked at) are BrowserGym's, with its defaults. `timeout` is in seconds for a reset or a step.
    """

    def __init__(self, images: Path, *, slow_mo: int | None = None, pause: float = 0.5, timeout: float = 180.0) -> None:
        self._settings = Settings(images=str(images.resolve()), slow_mo=slow_mo, pause=pause)
        self._timeout = timeout
        self._process: asyncio.subprocess.Process | None = None
        self._words: IO[bytes] | None = None
        self._last = Reply()
        self._untouched: tuple[str, int] | None = None

    async def tasks(self, benchmark: str) -> tuple[str, ...]:
        """The names of a benchmark's tasks: `miniwob.click-test` and so on. Raises UsageError when it is not installed."""
        return (await self._ask(Request(benchmark=benchmark))).tasks

    async def task(self, name: str, seed: int) -> Task:
        """The task with the goal that BrowserGym gives for this seed. In MiniWoB, seeds are other episodes than elsewhere."""
        self._last = await self._ask(Request(task=name, seed=seed))
        self._untouched = (name, seed)
        where, site = f"browsergym/{name}", name.partition(".")[0]
        return Task(id=f"{where}?seed={seed}", goal=self._last.goal, platform="web", site=site, start_url=self._last.url)

    async def reset(self, task: Task) -> Observation:
        """A new browser, and the episode that `task.id` names (`browsergym/<name>?seed=<number>`)."""
        match = re.fullmatch(r"browsergym/([\w.-]+)\?seed=(\d+)", task.id)
        if match is None:
            raise UsageError(f"task id {task.id!r}: expected browsergym/<name>?seed=<number>")
        episode, ready = (match[1], int(match[2])), self._untouched
        self._untouched = None
        if ready != episode or self._process is None:
            self._last = await self._ask(Request(task=episode[0], seed=episode[1]))
        return self._seen()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """The page after the action. What BrowserGym cannot carry out leaves the page as it was."""
        if self._process is None:
            raise UsageError("no episode is open: call reset first")
        self._untouched = None
        self._last = await self._ask(Request(call=call_of(action, *self._last.size)))
        return self._seen(), action.is_final or self._last.done

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Success is a reward above 0, as BrowserGym's users count it. The agent's last words are said first: some tasks
        are about an answer. An episode that broke off is undecided (None).
        """
        if trajectory.error is not None:
            return LabelRecord(id=trajectory.id, success=None, source="oracle", note="the episode broke off")
        last = trajectory.steps[-1].action if trajectory.steps else None
        if last is not None and last.is_final and not self._last.done:
            await self.step(last)
        reward = self._last.reward
        return LabelRecord(id=trajectory.id, success=reward > 0, source="oracle", note=f"reward {reward:g}")

    async def close(self) -> None:
        """Ends the process and its browser; safe to call twice."""
        process, self._process = self._process, None
        words, self._words = self._words, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            # What does not end by itself, and whatever it started, is ended.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if words is not None:
            words.close()

    def _seen(self) -> Observation:
        return Observation(screenshot=self._last.screenshot, text=self._last.text, url=self._last.url)

    async def _ask(self, request: Request) -> Reply:
        async with self._ended_unless_well():
            process = self._process or await self._start()
            assert process.stdin is not None and process.stdout is not None
            try:
                async with asyncio.timeout(self._timeout):
                    process.stdin.write(msgspec.json.encode(request) + b"\n")
                    await process.stdin.drain()
                    line = await process.stdout.readline()
            except TimeoutError:
                raise EnvironmentFailure(f"BrowserGym did not answer for {self._timeout:g} s and was ended") from None
            except ConnectionError:
                line = b""
            if not line.endswith(b"\n"):
                raise EnvironmentFailure(f"BrowserGym failed: {self._last_words()}")
            reply = msgspec.json.decode(line, type=Reply)
        if reply.error is not None:
            raise UsageError(reply.error)
        return reply

    @contextlib.asynccontextmanager
    async def _ended_unless_well(self) -> AsyncIterator[None]:
        """Whatever happens in between, a cancelled call too, leaves no process behind that waits for a lost request."""
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
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "prill.emulators.browsergym_host",
            msgspec.json.encode(self._settings).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        return self._process

    def _last_words(self) -> str:
        assert self._words is not None
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - 4000))
        lines = [line.strip() for line in self._words.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it ended without a word"
