"""A ranker in this process: a cross-encoder, which reads a candidate and a query together and
returns one score.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from prill.errors import MissingExtraError, UsageError
from prill.models.devices import hold
from prill.models.local.torchvision import mend_torchvision
from prill.models.local.trained import expect_trained
from prill.models.local.weights import folder_hash, model_failures

MAX_TOKENS = 512  # candidate and query together (Self-MAP, ACL 2024)


class CrossEncoder:
    """A ranker loaded from a folder that `prill train ranker` or `save_pretrained` wrote. It loads
    the model with the first request.

    `device` defaults to cuda if available, else cpu. `batch` is the number of texts per forward
    pass.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, device: str | None = None, batch: int = 32
    ) -> None:
        self.folder, self.device, self.batch = Path(folder), device, batch
        if not (self.folder / "config.json").is_file():
            raise UsageError(f"{folder}: not a ranker folder (it needs a config.json and weights)")
        expect_trained(self.folder)
        self._loaded: tuple[Any, Any] | None = None
        self._one = threading.Lock()
        hold(self)

    def free(self) -> None:
        """Frees the weights. The next call to `score` loads them again."""
        with self._one:
            self._loaded = None

    @cached_property
    def name(self) -> str:
        """The name of the folder and a hash of its weights."""
        return f"local/{self.folder.resolve().name} {folder_hash(self.folder.resolve())}"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the model's raw score for each text. Raises MissingExtraError and
        EndpointError.
        """
        return await asyncio.to_thread(self._score, query, list(texts))

    def _score(self, query: str, texts: list[str]) -> list[float]:
        with self._one:
            self._loaded = self._loaded or self._load()
        return scores(*self._loaded, query, texts, self.batch)

    def _load(self) -> tuple[Any, Any]:
        try:
            torch = importlib.import_module("torch")
            mend_torchvision()
            transformers = importlib.import_module("transformers")
        except ImportError as error:
            raise MissingExtraError(error.name or "transformers", "local") from None
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        with model_failures(f"{self.folder}: the ranker cannot be loaded"):
            reader = transformers.AutoTokenizer.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False
            )
            family = transformers.AutoModelForSequenceClassification
            model = family.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False, dtype=torch.float32
            )
        if model.config.num_labels != 1:
            raise UsageError(
                f"{self.folder}: the model has {model.config.num_labels} outputs, but a ranker "
                "has one; is it a classifier?"
            )
        return model.to(device).eval(), reader


def scores(model: Any, reader: Any, query: str, texts: Sequence[str], batch: int) -> list[float]:
    """Returns the score of each text, computed in batches of similar length."""
    torch = importlib.import_module("torch")
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = [0.0] * len(texts)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        with model_failures(), torch.inference_mode():
            inputs = pairs(
                reader, [texts[i] for i in places], [query] * len(places), MAX_TOKENS
            ).to(model.device)
            for place, score in zip(
                places, model(**inputs).logits[:, 0].float().tolist(), strict=True
            ):
                found[place] = score
    return found


def pairs(reader: Any, texts: Sequence[str], queries: Sequence[str], most: int) -> Any:
    """Tokenizes candidates and queries for the model, the candidate first, in training and
    inference.

    The papers' code reverses this order at evaluation (Self-MAP's repository); the model learns
    either order.
    """
    return reader(
        list(texts),
        list(queries),
        padding=True,
        truncation="longest_first",
        max_length=most,
        return_tensors="pt",
    )
