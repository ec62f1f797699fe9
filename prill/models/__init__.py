"""Language models: OpenAI-compatible endpoints, a local vLLM server, llama.cpp or transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily
from prill.protocols import LanguageModel, Message

if TYPE_CHECKING:
    from prill.models.client import OpenAIModel
    from prill.models.embedded import EmbeddedModel
    from prill.models.local.model import LocalModel
    from prill.models.local.torchvision import mend_torchvision
    from prill.models.registry import make_model
    from prill.models.replies import WordFormat
    from prill.models.vllm import VLLMModel

__all__ = [
    "EmbeddedModel", "LanguageModel", "LocalModel", "Message", "OpenAIModel", "VLLMModel",
    "WordFormat", "make_model", "mend_torchvision",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
