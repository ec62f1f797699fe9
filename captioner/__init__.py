"""Captioners: an observation in, text out. `prill.make_captioner("ocr")` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.captioner.bulk import caption_files
    from prill.captioner.cache import CachedCaptioner
    from prill.captioner.files import FileCaptioner, read_captions
    from prill.captioner.ocr import OCRCaptioner
    from prill.captioner.recorded import GivenCaption, TextState
    from prill.captioner.registry import captioner_for, make_captioner
    from prill.captioner.training import TrainingSpec, training_data
    from prill.captioner.vision import VLMCaptioner

__all__ = [
    "CachedCaptioner",
    "FileCaptioner",
    "GivenCaption",
    "OCRCaptioner",
    "TextState",
    "TrainingSpec",
    "VLMCaptioner",
    "caption_files",
    "captioner_for",
    "make_captioner",
    "read_captions",
    "training_data",
]
_HOMES = {
    "CachedCaptioner": "cache",
    "FileCaptioner": "files",
    "GivenCaption": "recorded",
    "OCRCaptioner": "ocr",
    "TextState": "recorded",
    "TrainingSpec": "training",
    "VLMCaptioner": "vision",
    "caption_files": "bulk",
    "captioner_for": "registry",
    "make_captioner": "registry",
    "read_captions": "files",
    "training_data": "training",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
