"""Estimates the time of captions and LoRA steps on a GPU from its data sheet:
`python benchmarks/roofline.py`.

Nothing is measured, and no GPU is needed. Each estimate is printed next to its roofline (at the
chip's full rates) and uses assumed shares of these rates. Comments name the sources of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from prill.refine.training.spec import training_spec

# NVIDIA's data sheet of the H200 SXM: dense bfloat16, memory bandwidth, memory.
FLOPS, BANDWIDTH, MEMORY = 989e12, 4.8e12, 141e9
# Assumed shares of these rates: for large matrix products, for reading weights token by token, for
# training; and the usable share of the memory.
COMPUTE_SHARE, READ_SHARE, TRAINING_SHARE, MEMORY_SHARE = 0.40, 0.70, 0.35, 0.90
BYTES = 2  # per number in bfloat16
SCREEN = (1280, 720)
# tokens: prill's request has 216 words; a dense caption of 300 words is assumed
REQUEST, CAPTION = 300, 400
TEXT = 400  # tokens of goal, history and answer in a row to train on: assumed


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder, from its config.json."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int

    @property
    def rank_one_params(self) -> int:
        """Parameters per layer of an adapter of rank 1."""
        own, shared = self.heads * self.head, self.kv_heads * self.head
        return (
            2 * (self.hidden + own)
            + 2 * (self.hidden + shared)
            + 3 * (self.hidden + self.intermediate)
        )

    @property
    def layer_params(self) -> int:
        """Parameters of all layers: queries and output, keys and values, and the three matrices of
        the feed-forward network.
        """
        attention = 2 * self.hidden * self.head * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def lm_head_params(self) -> int:
        """Parameters of the output matrix; the embedding table has the same size."""
        return self.hidden * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values in the cache."""
        return 2 * self.layers * self.kv_heads * self.head * BYTES


@dataclass(frozen=True)
class VisionEncoder:
    """The shape of a vision encoder, without its small projection."""

    layers: int
    hidden: int
    matrices: int  # parameters of a layer
    side: int  # pixels of a patch
    full: int  # layers with full attention
    window: int  # patches in the attention window of the other layers

    def flops(self, patches: int) -> float:
        """Returns the operations to encode an image: two per parameter and patch, and four per pair
        and dimension for the attention.
        """
        pairs = patches * (
            self.full * patches + (self.layers - self.full) * min(self.window, patches)
        )
        return 2 * self.layers * self.matrices * patches + 4 * self.hidden * pairs


# Qwen/Qwen2.5-VL-7B-Instruct, config.json: 8.29e9 parameters in all.
QWEN25 = Decoder(
    layers=28, hidden=3584, intermediate=18944, heads=28, kv_heads=4, head=128, vocabulary=152064
)
QWEN25_VISION = VisionEncoder(
    layers=32, hidden=1280, matrices=4 * 1280**2 + 3 * 1280 * 3420, side=14, full=4, window=64
)
QWEN25_PARAMS = 8.29e9
# Qwen/Qwen3-VL-8B-Instruct, config.json: 8.77e9 parameters in all.
QWEN3 = Decoder(
    layers=36, hidden=4096, intermediate=12288, heads=32, kv_heads=8, head=128, vocabulary=151936
)
QWEN3_PARAMS = 8.77e9
# parameters of an adapter of rank 1 in its vision encoder
QWEN3_VISION_RANK = 27 * (1152 + 3 * 1152 + 2 * 1152 + 2 * (1152 + 4304))


def picture_tokens(side: int) -> int:
    """Returns the tokens of a screenshot: one per 2 x 2 patches, with rounded sides."""
    return round(SCREEN[0] / (2 * side)) * round(SCREEN[1] / (2 * side))


@dataclass(frozen=True)
class Speed:
    """Captions per second: the estimate, and the roofline at the chip's full rates."""

    expected: float
    roof: float


def captions(batch: int) -> Speed:
    """Estimates the captions per second of Qwen2.5-VL-7B.

    Prefill of images and requests is limited by compute. Each decoding step, for the whole batch,
    takes the longer of reading the weights and the cached keys and values, and the products.
    """
    model, image_tokens = QWEN25, picture_tokens(QWEN25_VISION.side)
    prompt = image_tokens + REQUEST
    reading = QWEN25_VISION.flops(4 * image_tokens) + 2 * model.layer_params * prompt
    # causal attention: half of four operations per pair
    reading += 2 * model.layers * model.heads * model.head * prompt**2
    weights = model.layer_params + model.lm_head_params
    moved = BYTES * weights + batch * model.kv_bytes * (prompt + CAPTION / 2)

    def rate(computes: float, reads: float) -> float:
        word = max(moved / (BANDWIDTH * reads), 2 * weights * batch / (FLOPS * computes))
        return batch / (batch * reading / (FLOPS * computes) + CAPTION * word)

    return Speed(rate(COMPUTE_SHARE, READ_SHARE), rate(1.0, 1.0))


def max_batch() -> int:
    """Returns the number of captions whose keys and values fit into memory with the weights."""
    each = QWEN25.kv_bytes * (picture_tokens(QWEN25_VISION.side) + REQUEST + CAPTION)
    return int((MEMORY * MEMORY_SHARE - BYTES * QWEN25_PARAMS) / each)


@dataclass(frozen=True)
class Lora:
    """A step of LoRA on Qwen3-VL-8B: operations, seconds as assumed and at the full rate, bytes."""

    flops: float
    expected: float
    roof: float
    memory: float


def lora(preset: str) -> Lora:
    """Estimates a LoRA step with activation checkpointing: six operations per parameter and token
    (docs/how-to/training.md).
    """
    spec = training_spec(preset, model="Qwen/Qwen3-VL-8B-Instruct")
    tokens = picture_tokens(16) + TEXT
    flops = 6 * QWEN3_PARAMS * tokens * spec.batch
    adapter = spec.rank * (
        QWEN3.layers * QWEN3.rank_one_params + QWEN3_VISION_RANK * (spec.targets == "all")
    )
    # Four bytes each for the adapter, its gradient and AdamW's two moments; of the activations,
    # each layer's input and all of one recomputed layer (34 bytes per dimension: arXiv 2205.05198,
    # equation 2); and the logits.
    work = tokens * (
        QWEN3.layers * QWEN3.hidden * BYTES + 34 * QWEN3.hidden + 2 * 4 * QWEN3.vocabulary
    )
    return Lora(
        flops,
        flops / (FLOPS * TRAINING_SHARE),
        flops / FLOPS,
        BYTES * QWEN3_PARAMS + 16 * adapter + work,
    )


def main() -> None:
    print(
        "Estimated for one H200, not measured. Expected: 40 % of the peak compute rate, 70 % of "
        "the memory bandwidth, 35 % of the compute rate in training."
    )
    print(
        f"\nCaptions of {SCREEN[0]} x {SCREEN[1]} by Qwen2.5-VL-7B: {picture_tokens(14):,} + "
        f"{REQUEST} tokens in, {CAPTION} out"
    )
    print("| batch | captions per second | roofline | relative to batch 1 |\n|---|---|---|---|")
    one = captions(1).expected
    for batch in (1, 8, 32, 64, 128, 256):
        speed = captions(batch)
        print(f"| {batch} | {speed.expected:.2f} | {speed.roof:.2f} | {speed.expected / one:.1f} |")
    print(f"The memory holds a batch of at most {max_batch():,}.")
    print(
        f"\nA step of LoRA on Qwen3-VL-8B, {picture_tokens(16) + TEXT:,} tokens per row, one row "
        "at a time, with activation checkpointing"
    )
    print("| preset | rows | operations | seconds | roofline | memory |\n|---|---|---|---|---|---|")
    for preset in ("paper", "qwen3-vl"):
        step, batch = lora(preset), training_spec(preset, model="m").batch
        print(
            f"| {preset} | {batch} | {step.flops:.1e} | {step.expected:.2f} | {step.roof:.2f} | "
            f"{step.memory / 1e9:.1f} GB |"
        )


if __name__ == "__main__":
    main()
