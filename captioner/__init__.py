"""What turns a state of the screen into text. `prill.captioner("ocr")` makes one by name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.captioner.cache import CachedCaptioner
    from prill.captioner.files import FileCaptioner
    from prill.captioner.ocr import OCRCaptioner
    from prill.captioner.recorded import GivenCaption, TextState
    from prill.captioner.registry import captioner_for, make_captioner
    from prill.captioner.vision import VLMCaptioner

__all__ = [
    "CachedCaptioner",
    "FileCaptioner",
    "GivenCaption",
    "OCRCaptioner",
    "TextState",
    "VLMCaptioner",
    "captioner_for",
    "make_captioner",
]
_HOMES = {
    "CachedCaptioner": "cache",
    "FileCaptioner": "files",
    "GivenCaption": "recorded",
    "OCRCaptioner": "ocr",
    "TextState": "recorded",
    "VLMCaptioner": "vision",
    "captioner_for": "registry",
    "make_captioner": "registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)


class _Callable(ModuleType):
    """`prill.captioner` is this package and, for users, the function that makes a captioner: so the package can be called."""

    def __call__(self, *words: Any, **options: Any) -> Any:
        from prill.captioner.registry import make_captioner

        return make_captioner(*words, **options)


sys.modules[__name__].__class__ = _Callable
