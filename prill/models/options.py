"""Types of options that several models, judges and runs share, with their descriptions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from prill.io.cache import DiskCache

# Values of OpenAI's `reasoning_effort`; models support different subsets.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ImageDetail = Literal["low", "high", "auto"]
# JPEG quality of converted images; chroma is not subsampled, so that small text stays legible.
JPEG_QUALITY = 95
ImageFormat = Annotated[
    Literal["jpeg"] | None,
    Meta(
        description=f"Send every image as JPEG (quality {JPEG_QUALITY}), for servers that "
        "accept no other format."
    ),
]
BudgetOption = Annotated[
    float | None,
    Meta(
        ge=0,
        description="Budget in US dollars for all models together. No call is started beyond it.",
    ),
]
ConcurrencyOption = Annotated[int, Meta(ge=1, description="Maximum number of concurrent calls.")]
AttemptTimeoutOption = Annotated[
    float, Meta(gt=0, description="Timeout of one attempt, in seconds.")
]
MAX_TOKENS = Meta(ge=1, description="Maximum number of tokens in a reply.")
MaxTokensOption = Annotated[int, MAX_TOKENS]
BatchOption = Annotated[int, Meta(ge=1, description="Maximum number of calls in one batch.")]
DTYPE = Meta(
    description="Data type: bfloat16, float16 or float32 (vLLM's default: that of the weights)."
)
ReasoningOption = Annotated[
    bool, Meta(description="Ask for reasoning before the action, instead of the action alone.")
]
RetriesOption = Annotated[
    int, Meta(ge=0, description="Maximum number of retries after the first attempt.")
]
MaxPixelsOption = Annotated[
    int,
    Meta(
        ge=1, description="Maximum number of pixels of a screenshot. Larger ones are scaled down."
    ),
]
CacheOption = Annotated[DiskCache | None, Meta(description="Folder that caches replies for reuse.")]
AdapterOption = Annotated[
    str | None, Meta(description="Folder with a LoRA adapter in PEFT's format.")
]
# Sampling options of every model, used unless a sample is requested.
Temperature = Annotated[
    float | None,
    Meta(ge=0, description="Sampling temperature (default: 0, the most likely reply)."),
]
TopP = Annotated[
    float | None,
    Meta(
        gt=0,
        le=1,
        description="Nucleus sampling: sample from the most likely tokens with this total "
        "probability.",
    ),
]
TopK = Annotated[
    int | None, Meta(ge=0, description="Sample from this many most likely tokens; 0 for all.")
]
RepetitionPenalty = Annotated[
    float | None,
    Meta(gt=0, description="Penalty that divides the probability of repeated tokens; 1 for none."),
]
SamplingSeed = Annotated[int, Meta(description="Sampling seed.")]
AttemptOption = Annotated[
    int, Meta(ge=0, description="Number of the attempt at a task. It varies the samples.")
]
