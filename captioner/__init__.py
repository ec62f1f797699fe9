"""What turns a state of the screen into text. `prill.captioner("ocr")` makes one by name."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prill.captioner.cache import CachedCaptioner
    from prill.captioner.ocr import OCRCaptioner
    from prill.captioner.recorded import GivenCaption, TextState
    from prill.captioner.registry import captioner_for, make_captioner

__all__ = ["CachedCaptioner", "GivenCaption", "OCRCaptioner", "TextState", "captioner_for", "make_captioner"]
_HOMES = {
    "CachedCaptioner": "cache",
    "GivenCaption": "recorded",
    "OCRCaptioner": "ocr",
    "TextState": "recorded",
    "captioner_for": "registry",
    "make_captioner": "registry",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Callable(ModuleType):
    """`prill.captioner` is this package and, for users, the function that makes a captioner: so the package can be called."""

    def __call__(self, *words: Any, **options: Any) -> Any:
        return __getattr__("make_captioner")(*words, **options)  # type: ignore[operator]


sys.modules[__name__].__class__ = _Callable
