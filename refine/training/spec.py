"""Training settings and their presets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.config.registry import OptionError, nearest, read_options
from prill.config.toml import read_toml
from prill.errors import UsageError

Trained = Literal["policy", "captioner", "judge", "ranker", "planner"]
# The default presets.
DEFAULT_PRESETS: dict[Trained, str] = {
    "policy": "qwen3-vl",
    "captioner": "captioner",
    "judge": "judge",
    "ranker": "deberta-ranker",
    "planner": "flan-t5-base",
}
# The packages with presets, each in its presets.toml.
_PRESETS = ("prill.refine.training", "prill.papers.mind2web", "prill.papers.synapse")
# Models trained on recorded pages, with new candidates in each epoch, instead of rows in a file.
OF_PAGES: tuple[Trained, ...] = ("ranker", "planner")
# Settings that may change when a training resumes, since they do not affect the weights.
_HARMLESS = frozenset(
    {
        "checkpoint_every",
        "keep_checkpoints",
        "log_every",
        "samples",
        "sample_tokens",
        "report_to",
        "workers",
        "device",
        "engine_python",
    }
)


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """The settings of a training, checked on creation. `training_spec` makes them from a preset.

    `batch` is the number of rows per optimizer step, over all processes. `micro_batch` only sets
    how many of them are in memory at once; it does not change the result.

    Raises:
        OptionError: A setting is out of bounds or does not fit another one.
    """

    model: Annotated[
        str,
        Meta(
            min_length=1, description="folder of weights, name on the Hugging Face hub, or embedded"
        ),
    ]
    trains: Annotated[Trained, Meta(description="what the rows teach")] = "policy"
    engine: Annotated[
        Literal["trl", "swift"], Meta(description="TRL here, or ms-swift in its own environment")
    ] = "trl"
    engine_python: Annotated[
        str | None, Meta(description="swift: interpreter of the environment that has ms-swift")
    ] = None
    engine_options: Annotated[
        str, Meta(description="swift: further options of `swift sft`, as in a shell")
    ] = ""
    model_type: Annotated[
        str | None, Meta(description="swift: its name for the model (default: found by the model)")
    ] = None
    method: Annotated[
        Literal["lora", "qlora", "full"],
        Meta(description="an adapter, one over weights of 4 bits, or all weights"),
    ] = "lora"
    rank: Annotated[int, Meta(ge=1, description="rank of the adapter")] = 16
    alpha: Annotated[
        int | None, Meta(ge=1, description="scale of the adapter (default: twice the rank)")
    ] = None
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout before the adapter")] = 0.05
    targets: Annotated[
        str,
        Meta(
            min_length=1,
            description="where the adapter goes: attention or language (layers of the language "
            "model), all (the eyes too), or a regular expression over the names of "
            "layers",
        ),
    ] = "language"
    learning_rate: Annotated[float, Meta(gt=0, description="highest learning rate")] = 1e-4
    schedule: Annotated[
        Literal["linear", "cosine", "constant"],
        Meta(description="how the rate falls after the warm-up"),
    ] = "cosine"
    warmup: Annotated[
        float, Meta(ge=0, lt=1, description="share of the steps in which the rate rises")
    ] = 0.03
    weight_decay: Annotated[float, Meta(ge=0, description="AdamW's weight decay")] = 0.0
    beta1: Annotated[float, Meta(ge=0, lt=1, description="AdamW's first beta")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="AdamW's second beta")] = 0.999
    max_grad_norm: Annotated[
        float, Meta(ge=0, description="longer gradients are cut to it; 0: never")
    ] = 1.0
    batch: Annotated[int, Meta(ge=1, description="rows of a step, over all processes")] = 16
    micro_batch: Annotated[
        int | None,
        Meta(
            ge=1,
            description="rows at once in a process (default: 1 with pictures, else its share of a "
            "batch)",
        ),
    ] = None
    steps: Annotated[int | None, Meta(ge=1, description="steps in all (default: by epochs)")] = None
    epochs: Annotated[
        float, Meta(gt=0, description="times that every row is seen, where steps are not given")
    ] = 3.0
    max_length: Annotated[
        int | None, Meta(ge=8, description="most tokens of a row (default: the model's window)")
    ] = None
    overlong: Annotated[
        Literal["drop", "error"],
        Meta(description="what happens to longer rows of a file; none is ever cut"),
    ] = "drop"
    max_pixels: Annotated[
        int | None,
        Meta(
            ge=1,
            description="larger pictures are scaled down to it (default: the model's own limit)",
        ),
    ] = None
    negatives: Annotated[
        int, Meta(ge=1, description="ranker: wrong candidates that are drawn beside each right one")
    ] = 5
    draws: Annotated[
        int,
        Meta(
            ge=1,
            description="planner: times that a step is seen in an epoch, each with other "
            "candidates",
        ),
    ] = 10
    balance: Annotated[
        bool,
        Meta(
            description="judge: repeat the rows of rarer verdicts until all verdicts have as many; "
            "what is held out stays as it is"
        ),
    ] = True
    held_out: Annotated[
        float, Meta(ge=0, lt=1, description="share of the tasks kept apart to evaluate on")
    ] = 0.0
    checkpoint_every: Annotated[
        int | None,
        Meta(
            ge=1,
            description="steps between checkpoints and evaluations (default: a tenth, at most 500)",
        ),
    ] = None
    keep_checkpoints: Annotated[int, Meta(ge=1, description="checkpoints that stay on disk")] = 2
    log_every: Annotated[int, Meta(ge=1, description="steps between two losses in the log")] = 10
    samples: Annotated[
        int, Meta(ge=0, description="rows that are answered at each checkpoint, for people to read")
    ] = 4
    sample_tokens: Annotated[int, Meta(ge=1, description="most tokens of such an answer")] = 128
    gradient_checkpointing: Annotated[
        bool | None, Meta(description="less memory for a third more work (default: on a GPU)")
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="of the weights; auto: bfloat16 on a GPU, float32 on a CPU"),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu"], Meta(description="auto: a GPU where there is one")
    ] = "auto"
    workers: Annotated[int, Meta(ge=0, description="processes that prepare pictures")] = 0
    seed: Annotated[
        int, Meta(ge=0, description="of the adapter's start and the order of the rows")
    ] = 0
    report_to: Annotated[str, Meta(description="trackio, wandb, tensorboard, … or none")] = "none"
    trust_remote_code: Annotated[
        bool, Meta(description="run the Python code that the model's folder brings along")
    ] = False

    def __post_init__(self) -> None:
        read_options(
            TrainSpec, {field.name: getattr(self, field.name) for field in fields(self)}, "training"
        )
        self.engine_words()
        if self.trains in OF_PAGES and self.method != "full":
            raise OptionError(
                f"method: a {self.trains} is trained in full, not as {self.method}; say full",
                "method",
            )

    def engine_words(self) -> list[str]:
        """Splits the further options of the engine as a shell does.

        Raises:
            OptionError: The options cannot be split, for example at an unclosed quote.
        """
        try:
            return shlex.split(self.engine_options)
        except ValueError as error:
            raise OptionError(
                f"engine_options: {error}, in {self.engine_options!r}", "engine_options"
            ) from None

    @property
    def scale(self) -> int:
        """The adapter's alpha."""
        return 2 * self.rank if self.alpha is None else self.alpha

    def settings(self) -> dict[str, Any]:
        """Returns all settings as values of TOML and JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def lasting(self) -> dict[str, Any]:
        """Returns the settings that determine the result; resuming requires the same ones."""
        return {name: value for name, value in self.settings().items() if name not in _HARMLESS}


class TrainingPreset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A preset: a short description, the source of its figures, and the settings."""

    what: str
    source: str
    settings: dict[str, Any]


_Presets = dict[str, TrainingPreset]


@cache
def presets() -> Mapping[str, TrainingPreset]:
    """Returns the presets by name."""
    files = (resources.files(package) / "presets.toml" for package in _PRESETS)
    return {
        name: preset
        for file in files
        for name, preset in msgspec.toml.decode(file.read_bytes(), type=_Presets).items()
    }


def training_spec(
    preset: str | None = None, *, trains: Trained = "policy", lax: bool = False, **options: Any
) -> TrainSpec:
    """Makes the settings of a training from a preset.

    Args:
        preset: A preset's name, or a TOML file of settings, which may name a `preset` to start
            from. None: the default for the kind of model.
        trains: The kind of model to train.
        lax: Read numbers and truth values from text, for the command line.
        **options: Settings that override those of the preset.

    Returns:
        The settings.

    Raises:
        OptionError: A setting is unknown, missing, of the wrong type or out of bounds.
        UsageError: No preset has that name, or the file cannot be read.
    """
    preset = preset or DEFAULT_PRESETS[trains]
    place = ""
    if preset.endswith(".toml"):
        place, settings = f"{preset}: ", read_toml(preset)
        preset = settings.pop("preset", DEFAULT_PRESETS[trains])
        read_options(TrainSpec, {"model": "?", **settings}, "training", place=place)
    else:
        settings = {}
    if preset not in presets():
        raise UsageError(
            f"{place}unknown preset {preset!r}{nearest(str(preset), presets())}; there are: "
            f"{', '.join(presets())}, FILE.toml",
            parameters=("preset",),
        )
    given = {**presets()[preset].settings, "trains": trains, **settings, **options}
    return TrainSpec(**read_options(TrainSpec, given, "training", lax=lax))
