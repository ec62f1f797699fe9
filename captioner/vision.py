"""A captioner that uses a vision-language model, with the paper's prompt and optional OCR text.

There are three presets. `prill` requests a dense description in hierarchical Markdown at
temperature 0, as arXiv 2404.06474 requested it from the model that wrote its training data. `paper`
uses the request for the paper's fine-tuned captioner: a short prompt and its decoding parameters.
The wording of the prompts in both is prill's own. `original` uses the exact prompt that the
released captioner was trained on, including its template for EasyOCR's text.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal, Protocol, runtime_checkable

from msgspec import Meta

from prill.captioner.cache import CachedCaptioner, image_id
from prill.captioner.ocr import EngineName, OCRCaptioner
from prill.errors import ContextTooLongError, NoEvidenceError, TruncatedError, UsageError
from prill.models.in_flight import InFlight
from prill.models.options import MaxTokensOption, SamplingSeed
from prill.models.prompts import (
    NONCE,
    Prompt,
    content_hash,
    load_prompt,
    prompt_set,
    quoted,
    shorten,
)
from prill.protocols import Bounded, Image, LanguageModel, Message, SampledModel, SamplingLimits
from prill.types import Observation

# Increase it when the same settings would give a different caption: verdicts and caption files
# record it.
VERSION = "1"
PresetName = Literal["prill", "paper", "original"]
# Appended to a caption that reached its token limit, so that every reader, including judges, knows
# that it is incomplete.
CUT = "[The caption was cut off here: the screen may hold more than is described.]"
# The settings of arXiv 2404.06474's code, with at most 2,048 new tokens. The code sets no
# temperature; transformers' default is 1.
PAPER_DECODING = SamplingLimits(top_p=0.3, top_k=0, repetition_penalty=1.2)
_PAPER_TEMPERATURE = 1.0
_MAX_TOKENS = 2048
# Characters of OCR text in the retry of a request that does not fit the model's context window.
_SHORT_OCR = 2000
_MAX_CACHED = 1000
_OCR = load_prompt("prill.captioner", "ocr")
_REQUESTS = {"prill": "describe", "paper": "paper", "original": "original"}


@runtime_checkable
class _Scales(Protocol):
    """A model with a maximum number of pixels, to which it downscales images."""

    @property
    def max_pixels(self) -> int: ...


@dataclass(frozen=True, eq=False)
class VLMCaptioner:
    """A captioner that uses a vision-language model, which never sees the goal.

    A caption that is cut by `max_tokens`, also when twice as many are allowed, ends with `CUT`.
    Each object keeps its last 1,000 captions by picture; the model's cache of replies, or a caption
    file, keeps captions for longer. The model's `max_pixels` limits the image tokens.

    Raises:
        UsageError: The options are incompatible, or the prompt file cannot be used.
    """

    model: Annotated[LanguageModel, Meta(description="Vision model that describes the screenshot.")]
    ocr: Annotated[
        EngineName | None,
        Meta(
            description="OCR engine whose text is added to the request: rapidocr or "
            "easyocr (default: none)."
        ),
    ] = None
    preset: Annotated[
        PresetName,
        Meta(
            description="Request and decoding: prill (our own), paper (those of arXiv "
            "2404.06474), or original (the paper's exact words, for the released weights)."
        ),
    ] = "prill"
    max_tokens: MaxTokensOption = _MAX_TOKENS
    seed: SamplingSeed = 0
    prompt: Annotated[
        str | None, Meta(description="File with a prompt that replaces the request.")
    ] = None

    _kept: OrderedDict[str, str] = field(default_factory=OrderedDict, init=False, repr=False)
    _in_flight: InFlight = field(default_factory=InFlight, init=False, repr=False)

    def __post_init__(self) -> None:
        # Report invalid options now, not at the first screenshot.
        if self.preset == "original" and (
            self.ocr not in (None, "easyocr") or self.prompt is not None
        ):
            raise UsageError(
                "preset original uses the prompt and the OCR (easyocr, by paragraphs) that "
                "its model was trained on; leave out prompt, and any other ocr",
                parameters=("preset", "ocr", "prompt"),
            )
        self.name  # noqa: B018
        self._drawn  # noqa: B018

    @property
    def name(self) -> str:
        """The model, the preset, the OCR engine, and a hash of all that affects a caption."""
        pixels = self.model.max_pixels if isinstance(self.model, _Scales) else None
        reader = self._reader.name if self._reader else None
        settings = f"{VERSION} {self._drawn.name} {self.max_tokens} {pixels} {reader}"
        ocr_part = "" if reader is None else f", {reader}"
        prompts = (self.request.text, _OCR.text) if reader else (self.request.text,)
        fingerprint = content_hash(settings, *prompts).removeprefix("sha256:")[:8]
        return f"vlm {self.model.name} ({self.preset}{ocr_part}) {fingerprint}"

    @property
    def concurrency(self) -> int:
        """The model's maximum number of concurrent requests, or 16 if it has none."""
        return self.model.concurrency if isinstance(self.model, Bounded) else 16

    @cached_property
    def request(self) -> Prompt:
        """The prompt in use."""
        name = _REQUESTS[self.preset]
        return prompt_set({name: load_prompt("prill.captioner", name)}, (name,), self.prompt)[name]

    async def __call__(self, observation: Observation) -> str:
        """Returns the description.

        Raises: NoEvidenceError: There is no screenshot. InputError: The image cannot be used.
        UnscoredError: The model returns no usable answer.
        """
        path = observation.screenshot
        if path is None:
            raise NoEvidenceError("the state has no screenshot to describe")
        key = await asyncio.to_thread(image_id, path)
        if (known := self._kept.get(key)) is None:
            known = self._kept[key] = await self._in_flight.once(key, lambda: self._describe(path))
            if len(self._kept) > _MAX_CACHED:
                self._kept.popitem(last=False)
        return known

    def messages(self, path: str, ocr: str = "") -> tuple[Message, ...]:
        """Builds the request for an image.

        Args:
            path: The image file.
            ocr: The text that OCR read on it.
        """
        return (Message("user", (Image(path), request_text(self.request, ocr))),)

    async def read(self, path: str) -> str:
        """Reads the text that goes into the request.

        Returns:
            The text; empty without OCR.
        """
        return await self._reader(Observation(screenshot=path)) if self._reader else ""

    async def _describe(self, path: str) -> str:
        ocr = await self.read(path)
        try:
            return await self._complete(self.messages(path, ocr))
        except ContextTooLongError:
            if len(ocr) <= _SHORT_OCR:
                raise
            return await self._complete(self.messages(path, shorten(ocr, _SHORT_OCR)))

    async def _complete(self, messages: tuple[Message, ...]) -> str:
        try:
            reply = await self._drawn.complete(
                messages,
                max_tokens=self.max_tokens,
                prompt=content_hash(self.request.text, _OCR.text),
            )
        except TruncatedError as error:
            if not error.text.strip():
                raise
            return marked(error.text.strip(), cut=True)
        return reply.text.strip()

    @cached_property
    def _reader(self) -> CachedCaptioner | None:
        if self.preset == "original":
            return CachedCaptioner(OCRCaptioner("easyocr", paragraphs=True))
        return None if self.ocr is None else CachedCaptioner(OCRCaptioner(self.ocr))

    @cached_property
    def _drawn(self) -> LanguageModel:
        """The model with the preset's sampling parameters."""
        if self.preset == "prill":
            return self.model
        if not isinstance(self.model, SampledModel):
            raise UsageError(
                f"model {self.model.name} does not support sampling, which preset "
                f"{self.preset} needs; use preset prill"
            )
        return self.model.sampled(_PAPER_TEMPERATURE, self.seed, **PAPER_DECODING)


def request_text(request: Prompt, ocr: str = "") -> str:
    """Returns the text of a request with the OCR text.

    The OCR text is quoted below the request, or inserted unchanged if the request has a placeholder
    for it.
    """
    if "ocr" in request.slots:
        # fill() strips trailing whitespace
        return request.fill({"ocr": ocr})["user"] + "\n" * (not ocr)
    prompt = request.fill({})["user"]
    return (
        f"{prompt}\n\n{_OCR.fill({'ocr': quoted('ocr', ocr), 'code': NONCE})['user']}"
        if ocr
        else prompt
    )


def marked(text: str, *, cut: bool) -> str:
    """Returns the caption, with `CUT` appended if it was cut."""
    return f"{text}\n{CUT}" if cut else text


def unmarked(text: str) -> tuple[str, bool]:
    """Returns the caption without `CUT`, and whether it was cut."""
    return text.removesuffix(f"\n{CUT}"), text.endswith(f"\n{CUT}")
