"""A model in this process through transformers: a folder with its weights, text and images in, one answer out."""

from __future__ import annotations

import asyncio
import base64
import copy
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from prill.errors import Truncated, Unparsable, UsageError
from prill.models.client import PIXEL_BUDGET
from prill.models.dialect import GREEDY, Sampling
from prill.models.images import ImageEncoder
from prill.models.ledger import Ledger, Price
from prill.models.weights import Said, Weights, load
from prill.parse import Form, excerpt
from prill.prompts import NONCE, call_code
from prill.protocols import Image, Message, Reply
from prill.types import Usage

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_DTYPES = ("float32", "bfloat16", "float16")


class LocalModel:
    """The model in a folder, loaded with the first call; calls are carried out one after another in a thread of its own.

    path        a folder as `save_pretrained` writes it; nothing is fetched, and no code in it is run
    device      "cuda", "cpu", "mps" …; default: cuda where there is one, else cpu
    dtype       "float32", "bfloat16" or "float16"; default: that of the weights on a GPU, float32 on a CPU
    timeout     seconds for one answer
    max_pixels  larger screenshots are scaled down to this many pixels
    top_k       with `sampled`: draw from so many likeliest tokens only (arXiv 2404.06474's collection: 100); 0: from all

    The form of an answer is asked for in words and validated; nothing forces the model to keep to it. Replies carry no
    log-probabilities, cost nothing, and are not kept.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | None = None,
        dtype: str | None = None,
        timeout: float = 600.0,
        max_pixels: int = PIXEL_BUDGET,
        top_k: int = 0,
    ) -> None:
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            raise UsageError(f"{self.path}: no folder with a model in it (a config.json and weights)")
        if dtype not in (None, *_DTYPES):
            raise UsageError(f"unknown dtype {dtype!r}; choose {', '.join(_DTYPES)}")
        self.timeout = timeout
        self.top_k = top_k
        self.ledger = Ledger(Price(0.0, 0.0))
        self._device, self._dtype = device, dtype
        self._encode = ImageEncoder(max_pixels)
        self._sampling = GREEDY
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="prill-local-model")
        self._loaded: list[Weights] = []

    @property
    def name(self) -> str:
        """`local/` and the folder's name, and how it is sampled where that is not at temperature 0."""
        name = f"local/{self.path.resolve().name}"
        if self._sampling == GREEDY:
            return name
        return f"{name} (temperature {self._sampling.temperature:g}, seed {self._sampling.seed})"

    def sampled(self, temperature: float, seed: int) -> Self:
        """The same model, drawn from at a temperature; weights and thread are shared with this one."""
        other = copy.copy(self)
        other._sampling = Sampling(temperature, seed)
        return other

    async def complete(
        self, messages: Sequence[Message], *, form: Form | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """One answer; see `prill.protocols.LanguageModel`. An answer that is cut is asked for once more at twice the length."""
        code = call_code(part for message in messages for part in message.parts if isinstance(part, str))
        ending = form.instructions(as_json=not form.tagged) if form else ""
        spent = Usage()
        for limit in (max_tokens, 2 * max_tokens):
            said, images = await self._in_thread(partial(self._say, messages, code, ending, limit))
            spent += self.ledger.record(said.prompt_tokens, said.completion_tokens, images)
            if said.finished:
                break
        else:
            raise Truncated(f"the reply was cut at {2 * max_tokens} tokens: {excerpt(said.text)}")
        fields = form.parse(said.text) if form else {}
        if not said.text.strip():
            raise Unparsable("the reply is empty")
        return Reply(said.text, spent, fields)

    async def _in_thread(self, work: Callable[[threading.Event], tuple[Said, int]]) -> tuple[Said, int]:
        """Runs the work when its turn comes. A call that is given up stops generating at its next token."""
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, stop)
        finally:
            stop.set()

    def _say(
        self, messages: Sequence[Message], code: str, ending: str, max_tokens: int, stop: threading.Event
    ) -> tuple[Said, int]:
        if not self._loaded:
            self._loaded.append(load(self.path, self._device, self._dtype))
        turns, pictures = self._turns(messages, code, ending)
        said = self._loaded[0].generate(turns, max_tokens, self._sampling, self.top_k, self.timeout, stop)
        return said, pictures

    def _turns(self, messages: Sequence[Message], code: str, ending: str) -> tuple[list[dict[str, Any]], int]:
        """The messages in the form of chat templates, and how many pictures are in them."""
        rows, pictures = [], 0
        for number, message in enumerate(messages):
            parts: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, Image):
                    parts.append({"type": "image", "image": self._picture(part.path)})
                    pictures += 1
                else:
                    parts.append({"type": "text", "text": part.replace(NONCE, code)})
            if ending and number == 0:
                parts.append({"type": "text", "text": f"\n\n{ending}"})
            rows.append({"role": message.role, "content": parts})
        return rows, pictures

    def _picture(self, path: str) -> Picture:
        """The picture exactly as an endpoint would be sent it."""
        from PIL import Image as Pictures

        data = base64.b64decode(self._encode(path).url.partition(b",")[2])
        return Pictures.open(BytesIO(data)).convert("RGB")
