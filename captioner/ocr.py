"""The text on a screenshot, read by an OCR engine on the CPU."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from prill.captioner.boxes import TextBox, as_text, lines
from prill.captioner.engines import ENGINES, EngineName, engine_version, shared_engine
from prill.errors import NoEvidence, UsageError
from prill.types import Observation

# Raise it when the same engine would give another text: captions are cached by it.
VERSION = "1"
NO_TEXT = "(no text on the screen)"


@dataclass(frozen=True)
class OCRCaptioner:
    """What can be read on the screenshot, one line of text for each line on the screen.

    `engine` is rapidocr, which needs no torch, or easyocr, the one of arXiv 2404.06474. `threads` bounds the cores of one
    reading; None: all of them. Set it where several processes read at a time.
    """

    engine: EngineName = "rapidocr"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"unknown OCR engine {self.engine!r}; choose one of {', '.join(ENGINES)}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads is {self.threads}; give at least 1")

    @property
    def name(self) -> str:
        """Engine, its version, and the version of what is made of its findings. Raises MissingExtra without the engine."""
        return f"{self.engine}-{engine_version(self.engine)}+{VERSION}"

    async def __call__(self, observation: Observation) -> str:
        """The text of the screenshot; raises NoEvidence without one, InputError when the file cannot be used."""
        if observation.screenshot is None:
            raise NoEvidence("the state has no screenshot to read")
        return as_text(await self.read(observation.screenshot)) or NO_TEXT

    async def read(self, path: str) -> tuple[TextBox, ...]:
        """Every piece of text of an image file with its place, in reading order. Raises InputError."""
        engine = shared_engine(self.engine, self.threads)
        found = await asyncio.get_running_loop().run_in_executor(engine.executor, engine.read, path)
        return tuple(box for line in lines(found) for box in line)
