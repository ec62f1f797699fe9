"""Language models: one client for every OpenAI-compatible endpoint, llama.cpp in process, transformers in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.models.client import OpenAIModel
    from prill.models.embedded import EmbeddedModel
    from prill.models.local import LocalModel
    from prill.models.registry import make_model

__all__ = [
    "EmbeddedModel",
    "LocalModel",
    "OpenAIModel",
    "make_model",
]
_HOMES = {
    "EmbeddedModel": "embedded",
    "LocalModel": "local",
    "OpenAIModel": "client",
    "make_model": "registry",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
