"""OCR on the CPU: reads the text of a screenshot in reading order."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, get_args

from prill.errors import MissingExtraError, NoEvidenceError, UsageError
from prill.io.images import open_checked
from prill.models.local.torchvision import mend_torchvision
from prill.types import Observation

if TYPE_CHECKING:
    from PIL.Image import Image


# Increase it when the same engine would return different text: it is part of the cache key.
VERSION = "1"
NO_TEXT = "(no text on the screen)"
EngineName = Literal["rapidocr", "easyocr"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
Row = tuple[str, Sequence[Sequence[float]], float]  # text, corners in pixels, confidence
Reader = Callable[["Image"], Iterable[Row]]
# Text with a lower confidence is mostly noise. 0.5 is rapidocr's default; 0.3 is easyocr's
# confidence on screens that it reads well.
CONFIDENCE_FLOOR = {"rapidocr": 0.5, "easyocr": 0.3}
_EXTRAS = {"rapidocr": "ocr", "easyocr": "easyocr"}
# easyocr garbles text of small simulators such as MiniWoB++ (160x210) unless it is enlarged;
# rapidocr enlarges by itself.
_EASYOCR_SHORT_SIDE = 320


@dataclass(frozen=True, slots=True)
class TextBox:
    """A recognised piece of text.

    `box` is left, top, right, bottom in fractions of the screen; `confidence` is in [0, 1].
    """

    text: str
    box: tuple[float, float, float, float]
    confidence: float


@dataclass(frozen=True)
class OCRCaptioner:
    """A captioner that reads the text on a screenshot, one line of text for each line on the
    screen.

    Args:
        engine: `rapidocr`, which needs no torch, or `easyocr`, that of arXiv 2404.06474.
        threads: Maximum number of CPU cores per image. Set it if several processes read at the same
            time. None: all.
        paragraphs: Only for easyocr: join adjacent pieces of text into one line, in the engine's
            own order, as in that paper's captioner; a screen without text returns "".

    Raises:
        UsageError: The engine is not known, does not read paragraphs, or `threads` is below 1.
    """

    engine: EngineName = "rapidocr"
    threads: int | None = None
    paragraphs: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(
                f"unknown OCR engine {self.engine!r}; expected one of {', '.join(ENGINES)}"
            )
        if self.paragraphs and self.engine != "easyocr":
            raise UsageError(f"{self.engine} does not read paragraphs; use easyocr")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads is {self.threads}; expected at least 1")

    @property
    def name(self) -> str:
        """The engine, its version and the version of the post-processing.

        Raises MissingExtraError if the engine is not installed.
        """
        return (
            f"{self.engine}-{engine_version(self.engine)}+{VERSION}"
            + " paragraphs" * self.paragraphs
        )

    async def __call__(self, observation: Observation) -> str:
        """Returns the text of the screenshot.

        Raises:
            NoEvidenceError: There is no screenshot.
            InputError: The image cannot be used.
        """
        if observation.screenshot is None:
            raise NoEvidenceError("the state has no screenshot to read")
        if self.paragraphs:
            return "\n".join(box.text for box in await self._boxes(observation.screenshot))
        return as_text(await self.read(observation.screenshot)) or NO_TEXT

    async def read(self, path: str) -> tuple[TextBox, ...]:
        """Reads the text of an image.

        Returns:
            The pieces of text, with their boxes as left, top, right and bottom in [0, 1], from the
            top left of the image.
        """
        return tuple(box for line in lines(await self._boxes(path)) for box in line)

    async def _boxes(self, path: str) -> tuple[TextBox, ...]:
        engine = shared_engine(self.engine, self.threads, self.paragraphs)
        return await asyncio.get_running_loop().run_in_executor(engine.executor, engine.read, path)


@cache
def engine_version(engine: EngineName) -> str:
    """Returns the installed version of an engine; raises MissingExtraError if there is none."""
    try:
        return metadata.version(engine)
    except metadata.PackageNotFoundError:
        raise MissingExtraError(engine, _EXTRAS[engine]) from None


# Reading order


def lines(boxes: Iterable[TextBox]) -> list[tuple[TextBox, ...]]:
    """Groups the boxes into lines, from top to bottom, each from left to right.

    A box joins the line whose first box it overlaps by more than half of the lower one's height.
    """
    rows: list[list[TextBox]] = []
    for box in sorted(boxes, key=lambda b: (_middle(b), b.box[0])):
        if rows and _overlap(rows[-1][0], box) > 0.5:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [tuple(sorted(line, key=lambda b: b.box[0])) for line in rows]


def as_text(boxes: Iterable[TextBox]) -> str:
    """Returns one line of text for each line on the screen.

    Pieces with a gap between them are separated by ` | `.
    """
    return "\n".join(" | ".join(box.text for box in line) for line in lines(boxes))


def _middle(box: TextBox) -> float:
    return (box.box[1] + box.box[3]) / 2


def _overlap(a: TextBox, b: TextBox) -> float:
    shared = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    lower = min(a.box[3] - a.box[1], b.box[3] - b.box[1])
    return shared / lower if lower > 0 else 0.0


# The engines: loaded on first use, one per settings and process, one picture at a time


class OCREngine:
    """An OCR engine in a thread of its own, because engines keep state while they read an image."""

    def __init__(self, name: EngineName, threads: int | None, paragraphs: bool) -> None:
        self.name = name
        self.threads = threads
        self.paragraphs = paragraphs
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._reader: Reader | None = None

    def read(self, path: str) -> tuple[TextBox, ...]:
        """Returns the text boxes of an image file, unordered.

        Call it only in `executor`. Raises InputError.
        """
        image = open_checked(path)
        if self._reader is None:
            self._reader = _LOADERS[self.name](self.threads, self.paragraphs)
        boxes = (_box(row, image.width, image.height) for row in self._reader(image))
        return tuple(
            box for box in boxes if box.text and box.confidence >= CONFIDENCE_FLOOR[self.name]
        )


_engines: dict[tuple[int, EngineName, int | None, bool], OCREngine] = {}
_lock = threading.Lock()


def shared_engine(name: EngineName, threads: int | None, paragraphs: bool = False) -> OCREngine:
    """Returns this process's engine for these settings; it is loaded on its first read."""
    with _lock:
        # The process id is part of the key because the thread of an engine does not survive a fork.
        return _engines.setdefault(
            (os.getpid(), name, threads, paragraphs), OCREngine(name, threads, paragraphs)
        )


def _box(row: Row, width: int, height: int) -> TextBox:
    text, corners, confidence = row
    xs = [min(max(float(x) / width, 0.0), 1.0) for x, _ in corners]
    ys = [min(max(float(y) / height, 0.0), 1.0) for _, y in corners]
    return TextBox(" ".join(text.split()), (min(xs), min(ys), max(xs), max(ys)), float(confidence))


def _rapidocr(threads: int | None, paragraphs: bool) -> Reader:
    try:
        from rapidocr import RapidOCR
    except ImportError:
        raise MissingExtraError("rapidocr", "ocr") from None
    import numpy

    # box_thresh is 0.3 instead of 0.5: at 0.5, a short text alone in a field, such as a typed
    # number, is not detected.
    settings: dict[str, object] = {"Global.log_level": "critical", "Det.box_thresh": 0.3}
    if threads is not None:
        settings["EngineConfig.onnxruntime.intra_op_num_threads"] = min(
            threads, os.cpu_count() or 1
        )
    # Deliberately untyped: RapidOCR declares four result types, and a full read returns one of
    # them.
    engine: Callable[..., Any] = RapidOCR(params=settings)
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)

    def read(image: Image) -> Iterable[Row]:
        result = engine(numpy.asarray(image)[:, :, ::-1].copy())  # BGR
        if result.txts is None:
            return ()
        return zip(result.txts, result.boxes, result.scores, strict=True)

    return read


def _easyocr(threads: int | None, paragraphs: bool) -> Reader:
    for package in ("easyocr", "easyocr_en_models"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package.replace("_en_models", "-en-offline-models"), "easyocr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mend_torchvision()
        import easyocr
        import easyocr_en_models
        import numpy
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        engine = easyocr.Reader(
            ["en"],
            gpu=torch.cuda.is_available(),
            model_storage_directory=easyocr_en_models.model_dir(),
            download_enabled=False,
            verbose=False,
        )
    warnings.filterwarnings("ignore", message=".*pin_memory.*", module="torch")

    def read(image: Image) -> Iterable[Row]:
        if paragraphs:
            return [
                (text, corners, 1.0)
                for corners, text in engine.readtext(numpy.asarray(image), paragraph=True)
            ]
        scale = max(1.0, _EASYOCR_SHORT_SIDE / min(image.size))
        if scale > 1:
            image = image.resize((round(image.width * scale), round(image.height * scale)))
        rows = engine.readtext(numpy.asarray(image))
        return [
            (text, [(x / scale, y / scale) for x, y in corners], confidence)
            for corners, text, confidence in rows
        ]

    return read


_LOADERS: dict[EngineName, Callable[[int | None, bool], Reader]] = {
    "rapidocr": _rapidocr,
    "easyocr": _easyocr,
}
