"""Captioners turn an observation into text. `prill.make_captioner("ocr")` makes one by name."""

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
    "CachedCaptioner", "FileCaptioner", "GivenCaption", "OCRCaptioner", "TextState", "TrainingSpec",
    "VLMCaptioner", "caption_files", "captioner_for", "make_captioner", "read_captions",
    "training_data",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
