"""Estimates the time of captions and LoRA steps on a GPU from its data sheet:
`python benchmarks/reckoning.py`.

Nothing here is measured, and no GPU is needed. Each figure is printed beside its roof (the chip's
rates, which nobody reaches) with the shares of these rates that are assumed. Where the numbers come
from stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from prill.refine.training.spec import training_spec

# NVIDIA's data sheet of the H200 SXM: dense bfloat16, memory bandwidth, memory.
FLOPS, BANDWIDTH, MEMORY = 989e12, 4.8e12, 141e9
# Assumed, not measured: what large products of matrices, reading weights token by token, and
# training usually reach of these.
COMPUTES, READS, TRAINS, FILLED = 0.40, 0.70, 0.35, 0.90
BYTES = 2  # of a number in bfloat16
SCREEN = (1280, 720)
# tokens: prill's request has 216 words; a dense caption of 300 words is assumed
REQUEST, CAPTION = 300, 400
TEXT = 400  # tokens of goal, history and answer in a row to train on: assumed


@dataclass(frozen=True)
class Language:
    """The shape of a decoder, as config.json of its weights has it."""

    layers: int
    hidden: int
    between: int
    heads: int
    shared_heads: int
    head: int
    words: int

    @property
    def inputs_and_outputs(self) -> int:
        """Of all matrices of a layer: what an adapter of rank 1 has."""
        own, shared = self.heads * self.head, self.shared_heads * self.head
        return (
            2 * (self.hidden + own) + 2 * (self.hidden + shared) + 3 * (self.hidden + self.between)
        )

    @property
    def of_layers(self) -> int:
        """Parameters of all layers: queries and output, keys and values, and the three matrices in
        between.
        """
        attention = 2 * self.hidden * self.head * (self.heads + self.shared_heads)
        return self.layers * (attention + 3 * self.hidden * self.between)

    @property
    def head_of_words(self) -> int:
        """Parameters of the last matrix; the table of words is as large."""
        return self.hidden * self.words

    @property
    def kept(self) -> int:
        """Bytes of keys and values of a token."""
        return 2 * self.layers * self.shared_heads * self.head * BYTES


@dataclass(frozen=True)
class Eyes:
    """The shape of what looks at pictures, without its last matrices, which are small."""

    layers: int
    hidden: int
    matrices: int  # parameters of a layer
    side: int  # pixels of a patch
    whole: int  # layers in which every patch sees every other
    window: int  # patches that the other layers see

    def flops(self, patches: int) -> float:
        """To look at a picture once: two a parameter and patch, and the attention (four a pair and
        number).
        """
        pairs = patches * (
            self.whole * patches + (self.layers - self.whole) * min(self.window, patches)
        )
        return 2 * self.layers * self.matrices * patches + 4 * self.hidden * pairs


# Qwen/Qwen2.5-VL-7B-Instruct, config.json: 8.29e9 parameters in all.
QWEN25 = Language(
    layers=28, hidden=3584, between=18944, heads=28, shared_heads=4, head=128, words=152064
)
QWEN25_EYES = Eyes(
    layers=32, hidden=1280, matrices=4 * 1280**2 + 3 * 1280 * 3420, side=14, whole=4, window=64
)
QWEN25_ALL = 8.29e9
# Qwen/Qwen3-VL-8B-Instruct, config.json: 8.77e9 parameters in all.
QWEN3 = Language(
    layers=36, hidden=4096, between=12288, heads=32, shared_heads=8, head=128, words=151936
)
QWEN3_ALL = 8.77e9
# inputs and outputs of its layers that see
QWEN3_EYES_RANK = 27 * (1152 + 3 * 1152 + 2 * 1152 + 2 * (1152 + 4304))


def picture_tokens(side: int) -> int:
    """Tokens of a screen: a square of 2 x 2 patches each, its sides rounded to whole squares."""
    return round(SCREEN[0] / (2 * side)) * round(SCREEN[1] / (2 * side))


@dataclass(frozen=True)
class Speed:
    """Captions a second: as assumed, and at the chip's full rates."""

    expected: float
    roof: float


def captions(batch: int) -> Speed:
    """Captions a second of Qwen2.5-VL-7B: pictures and requests are read once, then words come one
    at a time for all together.

    A word costs reading all weights that it passes through, and the keys and values of everything
    before it; the products, where they take longer. Pictures and requests are products of large
    matrices.
    """
    model, squares = QWEN25, picture_tokens(QWEN25_EYES.side)
    prompt = squares + REQUEST
    reading = QWEN25_EYES.flops(4 * squares) + 2 * model.of_layers * prompt
    # attention to what is before: half of 4 a pair
    reading += 2 * model.layers * model.heads * model.head * prompt**2
    weights = model.of_layers + model.head_of_words
    moved = BYTES * weights + batch * model.kept * (prompt + CAPTION / 2)

    def rate(computes: float, reads: float) -> float:
        word = max(moved / (BANDWIDTH * reads), 2 * weights * batch / (FLOPS * computes))
        return batch / (batch * reading / (FLOPS * computes) + CAPTION * word)

    return Speed(rate(COMPUTES, READS), rate(1.0, 1.0))


def most_at_once() -> int:
    """Captions whose keys and values have room beside the weights."""
    each = QWEN25.kept * (picture_tokens(QWEN25_EYES.side) + REQUEST + CAPTION)
    return int((MEMORY * FILLED - BYTES * QWEN25_ALL) / each)


@dataclass(frozen=True)
class Lora:
    """A step of LoRA on Qwen3-VL-8B: operations, seconds as assumed and at the full rate, bytes."""

    flops: float
    expected: float
    roof: float
    memory: float


def lora(preset: str) -> Lora:
    """With layers computed again: six operations a parameter, token and row
    (docs/how-to/training.md).
    """
    spec = training_spec(preset, model="Qwen/Qwen3-VL-8B-Instruct")
    tokens = picture_tokens(16) + TEXT
    flops = 6 * QWEN3_ALL * tokens * spec.batch
    adapter = spec.rank * (
        QWEN3.layers * QWEN3.inputs_and_outputs + QWEN3_EYES_RANK * (spec.targets == "all")
    )
    # Four bytes each for the adapter, its gradient and AdamW's two moments; of a layer's work only
    # its input stays, and all of one layer that is computed again (34 bytes a number: arXiv
    # 2205.05198, equation 2); and the words' probabilities.
    work = tokens * (QWEN3.layers * QWEN3.hidden * BYTES + 34 * QWEN3.hidden + 2 * 4 * QWEN3.words)
    return Lora(
        flops, flops / (FLOPS * TRAINS), flops / FLOPS, BYTES * QWEN3_ALL + 16 * adapter + work
    )


def main() -> None:
    print(
        "Reckoned for one H200, not measured. Expected: 40 % of the products' rate, 70 % of the "
        "memory's, 35 % in training."
    )
    print(
        f"\nCaptions of {SCREEN[0]} x {SCREEN[1]} by Qwen2.5-VL-7B: {picture_tokens(14):,} + "
        f"{REQUEST} tokens in, {CAPTION} out"
    )
    print("| at once | captions a second | at the roof | times batch 1 |\n|---|---|---|---|")
    one = captions(1).expected
    for batch in (1, 8, 32, 64, 128, 256):
        speed = captions(batch)
        print(f"| {batch} | {speed.expected:.2f} | {speed.roof:.2f} | {speed.expected / one:.1f} |")
    print(f"Room in its memory for {most_at_once():,} at once.")
    print(
        f"\nA step of LoRA on Qwen3-VL-8B, {picture_tokens(16) + TEXT:,} tokens a row, a row at "
        "once, layers computed again"
    )
    print(
        "| preset | rows | operations | seconds | at the roof | memory |\n|---|---|---|---|---|---|"
    )
    for preset in ("paper", "qwen3-vl"):
        step, batch = lora(preset), training_spec(preset, model="m").batch
        print(
            f"| {preset} | {batch} | {step.flops:.1e} | {step.expected:.2f} | {step.roof:.2f} | "
            f"{step.memory / 1e9:.1f} GB |"
        )


if __name__ == "__main__":
    main()
