"""Training settings and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
            min_length=1,
            description="Model to train: a folder of weights, a name on the Hugging Face "
            "Hub, or embedded.",
        ),
    ]
    trains: Annotated[Trained, Meta(description="What is trained.")] = "policy"
    engine: Annotated[
        Literal["trl", "swift"],
        Meta(description="TRL in this environment, or ms-swift in an environment of its own."),
    ] = "trl"
    engine_python: Annotated[
        str | None, Meta(description="swift: Python interpreter of the environment with ms-swift.")
    ] = None
    options: Annotated[
        Mapping[str, Any],
        Meta(
            description="Further options of the trainer, which no setting here has: of TRL's "
            "SFTConfig, or of `swift sft`."
        ),
    ] = field(default_factory=dict)
    model_type: Annotated[
        str | None,
        Meta(description="swift: its name for the model type (default: detected from the model)."),
    ] = None
    method: Annotated[
        Literal["lora", "qlora", "full"],
        Meta(description="LoRA adapter, LoRA over 4-bit weights, or full training."),
    ] = "lora"
    rank: Annotated[int, Meta(ge=1, description="Rank of the adapter.")] = 16
    alpha: Annotated[
        int | None, Meta(ge=1, description="Scale of the adapter (default: twice the rank).")
    ] = None
    dropout: Annotated[float, Meta(ge=0, lt=1, description="Dropout before the adapter.")] = 0.05
    targets: Annotated[
        str,
        Meta(
            min_length=1,
            description="Layers that get an adapter: attention or language (layers of the "
            "language model), all (also the vision encoder), or a regular expression over "
            "layer names.",
        ),
    ] = "language"
    learning_rate: Annotated[float, Meta(gt=0, description="Peak learning rate.")] = 1e-4
    schedule: Annotated[
        Literal["linear", "cosine", "constant"],
        Meta(description="Learning rate schedule after the warm-up."),
    ] = "cosine"
    warmup: Annotated[
        float, Meta(ge=0, lt=1, description="Share of the steps used for the warm-up.")
    ] = 0.03
    weight_decay: Annotated[float, Meta(ge=0, description="Weight decay of AdamW.")] = 0.0
    beta1: Annotated[float, Meta(ge=0, lt=1, description="First beta of AdamW.")] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1, description="Second beta of AdamW.")] = 0.999
    max_grad_norm: Annotated[
        float, Meta(ge=0, description="Maximum gradient norm for clipping; 0 disables clipping.")
    ] = 1.0
    batch: Annotated[int, Meta(ge=1, description="Rows per step, over all processes.")] = 16
    micro_batch: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Rows per forward pass and process (default: 1 with images, else "
            "the process's share of a batch).",
        ),
    ] = None
    steps: Annotated[
        int | None, Meta(ge=1, description="Total number of steps (default: set by epochs).")
    ] = None
    epochs: Annotated[
        float, Meta(gt=0, description="Number of epochs, if steps are not given.")
    ] = 3.0
    max_length: Annotated[
        int | None,
        Meta(
            ge=8,
            description="Maximum number of tokens of a row (default: the model's context window).",
        ),
    ] = None
    overlong: Annotated[
        Literal["drop", "error"],
        Meta(description="What to do with longer rows. Rows are never truncated."),
    ] = "drop"
    max_pixels: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Maximum number of pixels of an image. Larger ones are scaled down "
            "(default: the model's own limit).",
        ),
    ] = None
    negatives: Annotated[
        int,
        Meta(ge=1, description="ranker: number of negative candidates sampled per positive one."),
    ] = 5
    draws: Annotated[
        int,
        Meta(
            ge=1,
            description="planner: number of times a step is used per epoch, each with "
            "other candidates.",
        ),
    ] = 10
    balance: Annotated[
        bool,
        Meta(
            description="judge: repeat training rows of rarer verdicts until all are "
            "equally frequent."
        ),
    ] = True
    held_out: Annotated[
        float, Meta(ge=0, lt=1, description="Share of the tasks held out for evaluation.")
    ] = 0.0
    checkpoint_every: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Steps between checkpoints and evaluations (default: a tenth of "
            "all, at most 500).",
        ),
    ] = None
    keep_checkpoints: Annotated[
        int, Meta(ge=1, description="Number of checkpoints to keep on disk.")
    ] = 2
    log_every: Annotated[int, Meta(ge=1, description="Steps between two logged losses.")] = 10
    gradient_checkpointing: Annotated[
        bool | None,
        Meta(
            description="Gradient checkpointing: uses less memory and a third more compute "
            "(default: on a GPU)."
        ),
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="Data type of the weights. auto: bfloat16 on a GPU, float32 on a CPU."),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu"], Meta(description="Device. auto: a GPU if available.")
    ] = "auto"
    workers: Annotated[int, Meta(ge=0, description="Number of processes that prepare images.")] = 0
    seed: Annotated[
        int,
        Meta(
            ge=0, description="Seed of the adapter's initialisation and of the order of the rows."
        ),
    ] = 0
    report_to: Annotated[
        str, Meta(description="Experiment tracker: trackio, wandb, tensorboard, … or none.")
    ] = "none"
    trust_remote_code: Annotated[
        bool, Meta(description="Run the Python code in the model's folder.")
    ] = False

    def __post_init__(self) -> None:
        read_options(
            TrainSpec, {each.name: getattr(self, each.name) for each in fields(self)}, "training"
        )
        if self.trains in OF_PAGES and self.options:
            raise OptionError(
                f"options: a {self.trains} is not trained by TRL's SFTTrainer", "options"
            )
        if self.trains in OF_PAGES and self.method != "full":
            raise OptionError(
                f"method: a {self.trains} is trained in full, not as {self.method}; set it to full",
                "method",
            )

    @property
    def scale(self) -> int:
        """The adapter's alpha."""
        return 2 * self.rank if self.alpha is None else self.alpha

    def settings(self) -> dict[str, Any]:
        """Returns all settings as values of TOML and JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

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
            f"{place}unknown preset {preset!r}{nearest(str(preset), presets())}; expected "
            f"one of {', '.join(presets())}, FILE.toml",
            parameters=("preset",),
        )
    given = {**presets()[preset].settings, "trains": trains, **settings, **options}
    return TrainSpec(**read_options(TrainSpec, given, "training", lax=lax))
