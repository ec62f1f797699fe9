"""Captions for all screenshots of trajectory files, into a caption file: each picture once, with resume and a clean stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from prill.cache import scratch_database
from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog
from prill.captioner.vision import unmarked
from prill.errors import InputError, NoEvidence, Unscored, UsageError
from prill.files.outputs import check_output, expect_place
from prill.models.ledger import metered
from prill.protocols import Bounded, Captioner, RecordedCaptioner
from prill.store import BadLine, Intake
from prill.types import Observation, Usage

CONCURRENCY = 16


@dataclass(slots=True)
class CaptionTally:
    """How a run stands. `files` counts the screenshot files that the trajectories name, each once; `seen` those dealt with.

    Of these `passed` were left out before anything was asked, `kept` have their caption in the file already, and `equal` have
    the content of another one; `made` and `unscored` are captions and failures of this run. `broken` counts lines that are no
    trajectory.
    """

    trajectories: int = 0
    broken: int = 0
    files: int = 0
    seen: int = 0
    passed: int = 0
    made: int = 0
    kept: int = 0
    equal: int = 0
    truncated: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    stopped: bool = False

    def fail(self, reason: str, problem: str) -> None:
        """Counts a picture without a caption; the first problems are kept for showing."""
        self.unscored[reason] += 1
        self._note(f"{reason}: {problem}")

    def reject(self, line: BadLine) -> None:
        """Counts a line that is no trajectory."""
        self.broken += 1
        self._note(line.message)

    def _note(self, problem: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(problem)


async def caption_files(
    paths: Sequence[str | os.PathLike[str]],
    captioner: Captioner,
    output: str | os.PathLike[str],
    *,
    last: int | None = None,
    concurrency: int | None = None,
    limit: int | None = None,
    resume: bool = True,
    retry_unscored: bool = False,
    stop: asyncio.Event | None = None,
    progress: Callable[[CaptionTally], None] = lambda tally: None,
) -> CaptionTally:
    """Captions the screenshots of trajectory files (or of the `last` states of each trajectory) into a caption file.

    Pictures are told apart by their content, and what the file holds already is not made again. A picture without a caption
    has a line that says why; a file that cannot be read has none. After `stop` is set no new picture is begun. Raises
    UsageError when no trajectory could be read, for a captioner that looks at no pictures, and for an output that holds
    something else, cannot be written, or is a pipe.
    """
    expect_place(output, "captions, which are continued,")
    with screenshots_in(paths, last=last, limit=limit) as (pictures, tally):
        check_output(output, "captions", paths, continued=resume)
        await caption_pictures(
            (picture.path for picture in pictures()),
            captioner,
            output,
            tally,
            concurrency=concurrency,
            resume=resume,
            retry_unscored=retry_unscored,
            stop=stop,
            progress=progress,
        )
    return tally


class Picture(NamedTuple):
    """A screenshot file, and the page text of the first state that it shows."""

    path: str
    text: str


@contextmanager
def screenshots_in(
    paths: Sequence[str | os.PathLike[str]], *, last: int | None = None, limit: int | None = None
) -> Iterator[tuple[Callable[[], Iterator[Picture]], CaptionTally]]:
    """The screenshot files of trajectories in the order in which they come up, each once, and the beginning of a tally.

    They wait in a temporary database; no picture is opened for it. Raises UsageError where there is none.
    """
    tally = CaptionTally()
    with closing(scratch_database()) as files, closing(Intake(paths, limit)) as intake:
        files.execute("CREATE TABLE files (number INTEGER PRIMARY KEY, path TEXT UNIQUE, text TEXT)")
        for _, item in intake:
            if isinstance(item, BadLine):
                tally.reject(item)
                continue
            tally.trajectories += 1
            for state in item.observations[-(last or 0) :]:
                if state.screenshot:
                    row = (state.screenshot, state.text or "")
                    files.execute("INSERT OR IGNORE INTO files (path, text) VALUES (?, ?)", row)
        (tally.files,) = files.execute("SELECT COUNT(*) FROM files").fetchone()
        if not tally.files:
            raise UsageError(f"{', '.join(map(str, intake.paths))}: no state has a screenshot; there is nothing to caption")
        yield lambda: (Picture(*row) for row in files.execute("SELECT path, text FROM files ORDER BY number")), tally


async def caption_pictures(
    paths: Iterator[str],
    captioner: Captioner,
    output: str | os.PathLike[str],
    tally: CaptionTally,
    *,
    concurrency: int | None = None,
    resume: bool = True,
    retry_unscored: bool = False,
    stop: asyncio.Event | None = None,
    progress: Callable[[CaptionTally], None] = lambda tally: None,
) -> None:
    """Captions some pictures into a caption file, as `caption_files` does, and counts in `tally`."""
    if isinstance(captioner, RecordedCaptioner):
        raise UsageError(f"captioner {captioner.name} looks at no pictures: what it gives is in the trajectories already")
    stop, start = stop or asyncio.Event(), time.monotonic()
    with CaptionLog(output, captioner.name, resume=resume, retry_unscored=retry_unscored) as log:
        workers = concurrency or (captioner.concurrency if isinstance(captioner, Bounded) else CONCURRENCY)
        try:
            await _Run(captioner, log, tally, stop, progress).work(paths, workers)
        finally:
            tally.seconds = time.monotonic() - start
            tally.stopped = stop.is_set()


@dataclass
class _Run:
    captioner: Captioner
    log: CaptionLog
    tally: CaptionTally
    stop: asyncio.Event
    progress: Callable[[CaptionTally], None]
    _begun: set[str] = field(default_factory=set)

    async def work(self, paths: Iterator[str], workers: int) -> None:
        """Captions the files, so many at a time. After a first error no file is begun; it is raised when the others ended."""

        async def one_after_another() -> None:
            with ExitStack() as on_failure:
                on_failure.callback(self.stop.set)
                while not self.stop.is_set() and (path := next(paths, None)) is not None:
                    await self._caption(path)
                    self.tally.seen += 1
                    self.progress(self.tally)
                on_failure.pop_all()

        for result in await asyncio.gather(*(one_after_another() for _ in range(workers)), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _caption(self, path: str) -> None:
        try:
            id = await asyncio.to_thread(image_id, path)
        except InputError as error:
            self.tally.fail("input", str(error))
            return
        if id in self._begun:
            self.tally.equal += 1
            return
        self._begun.add(id)
        if self.log.done(id, ""):
            self.tally.kept += 1
            return
        place = os.path.relpath(path, self.log.path.resolve().parent)
        with metered() as meter:
            try:
                text, cut = unmarked(await self.captioner(Observation(screenshot=path)))
                if not text.strip():
                    raise NoEvidence("the caption is empty")
                caption = Caption(id=id, captioner=self.captioner.name, image=place, caption=text, truncated=cut)
                self.tally.made += 1
                self.tally.truncated += cut
            except Unscored as error:
                caption = Caption(id=id, captioner=self.captioner.name, image=place, unscored=error.code, reason=str(error))
                self.tally.fail(error.code, f"{os.path.basename(path)}: {error}")
            finally:
                self.tally.usage += meter.usage
        self.log.append(caption)
