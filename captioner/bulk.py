"""Captions every distinct screenshot of trajectory files; a run can be stopped and resumed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog
from prill.captioner.recorded import GivenCaption
from prill.captioner.vision import unmarked
from prill.errors import InputError, NoEvidenceError, UnscoredError, UsageError
from prill.io.cache import scratch_database
from prill.io.outputs import check_output, expect_file
from prill.io.store import BadLine, TrajectoryReader
from prill.models.ledger import metered
from prill.protocols import Bounded, Captioner, Engine, RecordedCaptioner
from prill.types import Observation, StrPath
from prill.work.engines import make_engine
from prill.work.items import RunTally, Stop, work_through
from prill.work.remote import RemoteCaptioner, worked_by

CONCURRENCY = 16


@dataclass(slots=True, kw_only=True)
class CaptionTally(RunTally):
    """The progress of a captioning run.

    `files` counts the distinct screenshot files that the trajectories name. `seen` counts those
    that were processed.

    Of these, `passed` were filtered out before any request, `kept` already have a caption in the
    file, and `equal` have the same content as another file. `made` and `unscored` count the
    captions and failures of this run. `broken` counts lines that are not a trajectory.
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

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: phase, count, total, note, and the count before."""
        costs = f"{self.costs}, " if self.usage.calls else ""
        before = self.kept + self.equal + self.passed
        return "", self.seen, self.files, f"{costs}{sum(self.unscored.values())} without", before

    def fail(self, reason: str, problem: str) -> None:
        """Counts a picture without a caption and keeps the first problems for display."""
        self.unscored[reason] += 1
        self.note(f"{reason}: {problem}")

    def reject(self, line: BadLine) -> None:
        """Counts a line that is not a trajectory."""
        self.broken += 1
        self.note(line.message)


class CaptionOptions(TypedDict, total=False):
    """Options of a captioning run.

    They set the number of concurrent requests (default: the captioner's own, or 16), whether
    existing captions in the file are kept (default: yes), and whether recorded failures are
    retried. No new picture is started after `stop` is set. `progress` is called with the tally. The
    workers of an `engine` (a name or an
    instance) share the concurrent requests (`prill.work.engines`).
    """

    concurrency: int | None
    resume: bool
    retry_unscored: bool
    stop: asyncio.Event | None
    progress: Callable[[CaptionTally], None]
    engine: str | Mapping[str, Any] | Engine | None


async def caption_files(
    paths: Sequence[StrPath],
    captioner: Captioner,
    output: StrPath,
    *,
    last: int | None = None,
    limit: int | None = None,
    keep: Callable[[str], str] | None = None,
    **options: Unpack[CaptionOptions],
) -> CaptionTally:
    """Captions the screenshots of trajectory files into a caption file. The same call resumes.

    Screenshots are identified by their content, and captions that the file already holds are kept.
    A screenshot without a caption gets a line that says why; one that cannot be read gets none.

    Args:
        paths: Trajectory files, or folders of them.
        captioner: The captioner.
        output: The caption file.
        last: Maximum number of states per trajectory, counted from its end. None: all.
        limit: Maximum number of trajectories to read, from the first. None: all.
        keep: Returns the path that the caption file names for a screenshot, which may be that of a
            copy. None: the screenshot's own.
        **options: As `CaptionOptions` describes them.

    Raises:
        UsageError: No trajectory could be read, the captioner does not read images, or the output
            contains other data, cannot be written or is a pipe.
    """
    expect_file(output, "captions")
    with screenshots_in(paths, last=last, limit=limit, keep=keep) as (pictures, tally):
        check_output(output, "captions", paths, continued=options.get("resume", True))
        await caption_pictures(pictures(), captioner, output, tally, **options)
    return tally


class ScreenshotFile(NamedTuple):
    """A screenshot file, with the page text and recorded caption of the first state showing it."""

    path: str
    text: str
    caption: str | None


@contextmanager
def screenshots_in(
    paths: Sequence[StrPath],
    *,
    last: int | None = None,
    limit: int | None = None,
    keep: Callable[[str], str] | None = None,
) -> Iterator[tuple[Callable[[], Iterator[ScreenshotFile]], CaptionTally]]:
    """Yields the distinct screenshot files of trajectories in order of appearance, and a new tally.

    The file names are kept in a temporary database; no picture is opened. `keep` maps each path
    when its picture is taken. Raises UsageError if no state has a screenshot.
    """
    tally = CaptionTally()
    with closing(scratch_database()) as files, closing(TrajectoryReader(paths, limit)) as reader:
        files.execute(
            "CREATE TABLE files (number INTEGER PRIMARY KEY, path TEXT UNIQUE, text TEXT, caption "
            "TEXT)"
        )
        for _, item in reader:
            if isinstance(item, BadLine):
                tally.reject(item)
                continue
            tally.trajectories += 1
            for state in item.observations[-(last or 0) :]:
                if state.screenshot:
                    row = (state.screenshot, state.text or "", state.caption)
                    files.execute(
                        "INSERT OR IGNORE INTO files (path, text, caption) VALUES (?, ?, ?)", row
                    )
        (tally.files,) = files.execute("SELECT COUNT(*) FROM files").fetchone()
        if not tally.files:
            raise UsageError(
                f"{', '.join(map(str, reader.paths))}: no state has a screenshot; there is "
                "nothing to caption"
            )
        yield (
            lambda: (
                ScreenshotFile(keep(path) if keep else path, text, caption)
                for path, text, caption in files.execute(
                    "SELECT path, text, caption FROM files ORDER BY number"
                )
            ),
            tally,
        )


def expect_pictures(captioner: Captioner, engine: object = None) -> None:
    """Raises UsageError for a captioner that does not read images.

    The captioner `given` is accepted, but not together with an engine.
    """
    if isinstance(captioner, RecordedCaptioner) and (
        engine is not None or not isinstance(captioner, GivenCaption)
    ):
        raise UsageError(
            f"captioner {captioner.name} does not use images; its output is already in the "
            "trajectories"
        )


async def caption_pictures(
    pictures: Iterator[ScreenshotFile],
    captioner: Captioner,
    output: StrPath,
    tally: CaptionTally,
    *,
    concurrency: int | None = None,
    resume: bool = True,
    retry_unscored: bool = False,
    stop: asyncio.Event | None = None,
    progress: Callable[[CaptionTally], None] = lambda tally: None,
    engine: str | Mapping[str, Any] | Engine | None = None,
) -> None:
    """Captions pictures into a caption file as `caption_files` does, and updates `tally`."""
    expect_pictures(captioner, engine)
    elsewhere = None if engine is None else make_engine(engine)
    stop, start = stop or asyncio.Event(), time.monotonic()
    with CaptionLog(output, captioner.name, resume=resume, retry_unscored=retry_unscored) as log:
        workers = concurrency or (
            captioner.concurrency if isinstance(captioner, Bounded) else CONCURRENCY
        )
        try:
            async with worked_by(elsewhere, captioner, RemoteCaptioner) as made:
                await _Run(made, log, tally, stop, progress).work(pictures, workers)
        finally:
            tally.seconds = time.monotonic() - start
            tally.stopped = stop.is_set()


@dataclass
class _Run:
    captioner: Captioner
    log: CaptionLog
    tally: CaptionTally
    stop: Stop
    progress: Callable[[CaptionTally], None]
    begun: set[str] = field(default_factory=set)

    def _place(self, path: str) -> str:
        """Returns the picture's path relative to the folder of the caption file."""
        return os.path.relpath(path, self.log.path.resolve().parent)

    async def work(self, pictures: Iterator[ScreenshotFile], workers: int) -> None:
        """Captions the files with up to `workers` concurrent requests; errors as `work_through`."""
        await work_through(pictures, workers, self.stop, self._work)

    async def _work(self, picture: ScreenshotFile) -> None:
        await self._caption(picture)
        self.tally.seen += 1
        self.progress(self.tally)

    async def _caption(self, picture: ScreenshotFile) -> None:
        path = picture.path
        try:
            id = await asyncio.to_thread(image_id, path)
        except InputError as error:
            self.tally.fail("input", str(error))
            return
        if id in self.begun:
            self.tally.equal += 1
            return
        self.begun.add(id)
        if self.log.lasting_key(id) is not None:
            self.tally.kept += 1
            return
        place = self._place(path)
        with metered() as meter:
            try:
                text, cut = unmarked(
                    await self.captioner(Observation(screenshot=path, caption=picture.caption))
                )
                if not text.strip():
                    raise NoEvidenceError("the caption is empty")
                caption = Caption(
                    id=id, captioner=self.captioner.name, image=place, caption=text, truncated=cut
                )
                self.tally.made += 1
                self.tally.truncated += cut
            except UnscoredError as error:
                caption = Caption(
                    id=id,
                    captioner=self.captioner.name,
                    image=place,
                    unscored=error.code,
                    reason=str(error),
                )
                self.tally.fail(error.code, f"{Path(path).name}: {error}")
            finally:
                self.tally.usage += meter.usage
        self.log.append(caption)
