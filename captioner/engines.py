"""The OCR engines: loaded on first use, one of a kind in a process, one picture at a time."""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, get_args

from prill.captioner.boxes import TextBox
from prill.errors import MissingExtra
from prill.models.images import open_checked

if TYPE_CHECKING:
    from PIL.Image import Image

EngineName = Literal["rapidocr", "easyocr"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

Row = tuple[str, Sequence[Sequence[float]], float]  # text, corners in pixels, confidence
Reader = Callable[["Image"], Iterable[Row]]

# Below it the text is more noise than words; rapidocr's own default, and what easyocr gives to well-read screens.
CONFIDENCE_FLOOR = {"rapidocr": 0.5, "easyocr": 0.3}
_EXTRAS = {"rapidocr": "ocr", "easyocr": "easyocr"}
# easyocr garbles text of small simulators such as MiniWoB++ (160x210) unless it is enlarged; rapidocr enlarges by itself.
_EASYOCR_SHORT_SIDE = 320


@cache
def engine_version(engine: EngineName) -> str:
    """The installed version; raises MissingExtra when there is none."""
    try:
        return metadata.version(engine)
    except metadata.PackageNotFoundError:
        raise MissingExtra(engine, _EXTRAS[engine]) from None


class Engine:
    """An OCR engine with a thread of its own: engines keep state between the parts of one reading."""

    def __init__(self, name: EngineName, threads: int | None) -> None:
        self.name = name
        self.threads = threads
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._reader: Reader | None = None

    def read(self, path: str) -> tuple[TextBox, ...]:
        """The text boxes of an image file, unordered. Runs in `executor` only. Raises InputError."""
        image = open_checked(path)
        if self._reader is None:
            self._reader = _LOADERS[self.name](self.threads)
        boxes = (_box(row, image.width, image.height) for row in self._reader(image))
        return tuple(box for box in boxes if box.text and box.confidence >= CONFIDENCE_FLOOR[self.name])


def shared_engine(name: EngineName, threads: int | None) -> Engine:
    """The one engine of this process with these settings; nothing is loaded before its first reading."""
    with _lock:
        # The process id is part of the key because the thread of an engine does not survive a fork.
        return _engines.setdefault((os.getpid(), name, threads), Engine(name, threads))


_engines: dict[tuple[int, EngineName, int | None], Engine] = {}
_lock = threading.Lock()


def _box(row: Row, width: int, height: int) -> TextBox:
    text, corners, confidence = row
    xs = [min(max(float(x) / width, 0.0), 1.0) for x, _ in corners]
    ys = [min(max(float(y) / height, 0.0), 1.0) for _, y in corners]
    return TextBox(" ".join(text.split()), (min(xs), min(ys), max(xs), max(ys)), float(confidence))


def _rapidocr(threads: int | None) -> Reader:
    try:
        from rapidocr import RapidOCR
    except ImportError:
        raise MissingExtra("rapidocr", "ocr") from None
    import numpy

    # box_thresh 0.3 instead of 0.5: at 0.5 a short text alone in a field, such as a typed number, is not found.
    settings: dict[str, object] = {"Global.log_level": "critical", "Det.box_thresh": 0.3}
    if threads is not None:
        settings["EngineConfig.onnxruntime.intra_op_num_threads"] = min(threads, os.cpu_count() or 1)
    # Untyped on purpose: it declares four kinds of result, of which a full reading gives one.
    engine: Callable[..., Any] = RapidOCR(params=settings)
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)

    def read(image: Image) -> Iterable[Row]:
        found = engine(numpy.asarray(image)[:, :, ::-1].copy())  # BGR
        if found.txts is None:
            return ()
        return zip(found.txts, found.boxes, found.scores, strict=True)

    return read


def _easyocr(threads: int | None) -> Reader:
    for package in ("easyocr", "easyocr_en_models"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package.replace("_en_models", "-en-offline-models"), "easyocr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
        scale = max(1.0, _EASYOCR_SHORT_SIDE / min(image.size))
        if scale > 1:
            image = image.resize((round(image.width * scale), round(image.height * scale)))
        rows = engine.readtext(numpy.asarray(image))
        return [(text, [(x / scale, y / scale) for x, y in corners], confidence) for corners, text, confidence in rows]

    return read


_LOADERS: dict[EngineName, Callable[[int | None], Reader]] = {"rapidocr": _rapidocr, "easyocr": _easyocr}
