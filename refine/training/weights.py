"""The base model of a training: checks, loading, and the adapter's target layers."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

from prill.config.registry import OptionError
from prill.errors import EndpointError, MissingExtraError, UsageError
from prill.models.local.embedded_weights import embedded_model_folder
from prill.models.local.torchvision import mend_torchvision
from prill.models.local.trained import find_model
from prill.models.local.weights import error_cause, library_errors
from prill.refine.training.spec import TrainSpec

# Module names of vision encoders and of their projectors to the language model.
EYES = r"(.*\.)?(visual|vision\w*|image_\w+|multi_modal_projector|connector|merger)(\..*)?"
KINDS_OF_TARGETS = ("attention", "language", "all")
ATTENTION = (
    "q_proj", "k_proj", "v_proj", "o_proj", "query_key_value", "qkv_proj", "c_attn", "out_proj",
    "dense",
)  # fmt: skip
# Models whose code needs an old transformers, by the architecture in config.json: the model's name
# and the required versions.
_OF_THEIR_OWN = {
    "CogAgentForCausalLM": ("CogAgent", "transformers below 4.42"),
    "CogVLMForCausalLM": ("CogVLM", "transformers below 4.42"),
    "QWenLMHeadModel": ("Qwen-VL-Chat", "transformers below 4.42"),
    "ChatGLMForConditionalGeneration": ("CogAgent-9B or GLM-4V", "transformers 4.47 to 4.48.3"),
}


@dataclass(frozen=True, slots=True)
class Base:
    """A model before its weights are loaded: folder or name, config, and tokenizer or processor.

    `loads` names the class of transformers for models that are not chat models.
    """

    name: str
    config: Any
    reader: Any
    sees: bool
    loads: str = ""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return getattr(self.reader, "tokenizer", self.reader)

    @property
    def window(self) -> int | None:
        """The context window in tokens."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None)

    def family(self) -> Any:
        """The class of transformers that loads the model."""
        transformers = importlib.import_module("transformers")
        if self.loads:
            return getattr(transformers, self.loads)
        return (
            transformers.AutoModelForImageTextToText
            if self.sees
            else transformers.AutoModelForCausalLM
        )

    def outline(self, spec: TrainSpec) -> Any:
        """Builds the model without weights, to count parameters and list layers."""
        torch = importlib.import_module("torch")
        with model_failures(self.name), torch.device("meta"):
            return self.family().from_config(self.config, trust_remote_code=spec.trust_remote_code)


def need_packages(spec: TrainSpec) -> None:
    """Raises MissingExtraError for a package that the training needs."""
    for package in ("torch", "transformers", "trl", "peft", "accelerate", "datasets.arrow_dataset"):
        top = package.partition(".")[0]
        if importlib.util.find_spec(top) is None or importlib.util.find_spec(package) is None:
            raise MissingExtraError(top, "train")
    if spec.method == "qlora" and importlib.util.find_spec("bitsandbytes") is None:
        raise MissingExtraError("bitsandbytes")


def open_base(spec: TrainSpec) -> Base:
    """Reads the model's config and tokenizer or processor, without the weights.

    Raises UsageError for a model that cannot be trained here, EndpointError for one that cannot be
    read.
    """
    base = read_base(spec)
    if not getattr(base.reader, "chat_template", None):
        raise OptionError(
            f"model: {base.name}: has no chat template; use an instruct model", "model"
        )
    if base.sees and spec.max_pixels:
        size = dict(base.reader.image_processor.size)
        if "longest_edge" not in size:
            raise OptionError(
                f"max_pixels: {base.name} uses images of a fixed size; leave it out", "max_pixels"
            )
        base.reader.image_processor.size = bounded_size(size, spec.max_pixels)
    return base


def bounded_size(size: Mapping[str, int], max_pixels: int) -> dict[str, int]:
    """Limits an image processor's `size` to `max_pixels` pixels per image.

    Qwen models store areas under the names `shortest_edge` and `longest_edge`. Idefics3 and SmolVLM
    scale each image until its longer side is `longest_edge`, and have no shortest edge; there the
    limit is the side of a square of that area. The limit never increases, since images would
    otherwise be larger in training than in use.
    """
    if "shortest_edge" not in size:
        return {"longest_edge": min(size["longest_edge"], math.isqrt(max_pixels))}
    return {edge: min(size[edge], max_pixels) for edge in ("longest_edge", "shortest_edge")}


def read_base(spec: TrainSpec) -> Base:
    """Reads the model's config, and its processor if it takes images, or else its tokenizer."""
    name = _ready(spec)
    transformers = importlib.import_module("transformers")
    with model_failures(name):
        raw, _ = transformers.PreTrainedConfig.get_config_dict(name)
        _refuse_old(name, raw, spec)
        config = transformers.AutoConfig.from_pretrained(
            name, trust_remote_code=spec.trust_remote_code
        )
        sees = type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        reads = transformers.AutoProcessor if sees else transformers.AutoTokenizer
        reader = reads.from_pretrained(name, trust_remote_code=spec.trust_remote_code)
    return Base(name, config, reader, sees)


def _ready(spec: TrainSpec) -> str:
    """Checks that the model can be read, and returns its folder or name."""
    need_packages(spec)
    # This turns off TRL's telemetry; huggingface_hub reads the variable on import.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    mend_torchvision()
    if spec.model == "embedded":
        return str(embedded_model_folder())
    try:
        folder = find_model(spec.model)
    except UsageError as error:
        raise OptionError(f"model: {error}", "model") from None
    if folder is None:
        return spec.model
    if (folder / "adapter_config.json").is_file():
        raise OptionError(
            f"model: {folder}: is an adapter; give the model that it belongs to", "model"
        )
    return str(folder)


def load_model(base: Base, spec: TrainSpec, *, on_gpu: bool) -> Any:
    """Loads the model with its weights."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    settings: dict[str, Any] = {"dtype": weights_dtype(spec, on_gpu=on_gpu)}
    if spec.method == "qlora":
        settings["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    if base.loads:  # a ranker gets a new head, whatever head the encoder had
        settings |= {"config": base.config, "ignore_mismatched_sizes": True}
    with model_failures(base.name):
        return base.family().from_pretrained(
            base.name, trust_remote_code=spec.trust_remote_code, **settings
        )


def weights_dtype(spec: TrainSpec, *, on_gpu: bool) -> Any:
    """Returns the weights' dtype: float32 in full training, as bfloat16 loses updates of 1e-5."""
    torch = importlib.import_module("torch")
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    return torch.bfloat16 if on_gpu and spec.method != "full" else torch.float32


def adapter_config(model: Any, spec: TrainSpec) -> Any:
    """Returns PEFT's config of the adapter; None if all weights are trained. Raises OptionError for
    targets that the model lacks.
    """
    if spec.method == "full":
        return None
    peft = importlib.import_module("peft")
    found = adapted(model, spec.targets)
    if spec.targets == "all":
        chosen: dict[str, Any] = {"target_modules": "all-linear"}
    elif spec.targets in KINDS_OF_TARGETS:
        eyes = EYES if any(re.fullmatch(EYES, name) for name, _ in model.named_modules()) else None
        chosen = {
            "target_modules": sorted({_kind_from_name(name) for name in found}),
            "exclude_modules": eyes,
        }
    else:
        chosen = {"target_modules": spec.targets}
    return peft.LoraConfig(
        r=spec.rank,
        lora_alpha=spec.scale,
        lora_dropout=spec.dropout,
        task_type="CAUSAL_LM",
        **chosen,
    )


def _kind_from_name(name: str) -> str:
    """Returns the last part of a layer's name, which other blocks share. A number is joined with
    the part before it, because a number alone would match whole blocks.
    """
    *before, last = name.split(".")
    return f"{before[-1]}.{last}" if last.isdigit() and before else last


def adapted(model: Any, targets: str) -> dict[str, Any]:
    """Returns the layers with an adapter, by name, without the head. Raises OptionError: none."""
    torch = importlib.import_module("torch")
    head = model.get_output_embeddings()
    linear = {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear) and part is not head
    }
    found = {name: part for name, part in linear.items() if _is_target(name, targets)}
    if not found:
        some = ", ".join(list(linear)[:3])
        raise OptionError(
            f"targets: {targets!r} matches no layer of this model; its layers are {some}, …",
            "targets",
        )
    return found


def _is_target(name: str, targets: str) -> bool:
    if targets not in KINDS_OF_TARGETS:
        return re.fullmatch(targets, name) is not None
    if targets == "all":
        return True
    return not re.fullmatch(EYES, name) and (
        targets == "language" or name.rpartition(".")[2] in ATTENTION
    )


def keeps_logits(model: Any) -> bool:
    """Whether the model, without its adapter, can compute the logits of some positions only."""
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in signature(type(bare).forward).parameters


def silence_libraries() -> None:
    """Turns off progress bars and notices of transformers and datasets in this process."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"


@contextmanager
def model_failures(name: str) -> Iterator[None]:
    """Turns transformers' errors about a model into one EndpointError that names the model."""
    try:
        yield
    except MissingExtraError:
        raise
    except library_errors() as error:
        raise EndpointError(f"model {name} cannot be used: {error_cause(error)}") from error


def _refuse_old(name: str, raw: dict[str, Any], spec: TrainSpec) -> None:
    """Raises an error before loading for models that this transformers version cannot load."""
    transformers = importlib.import_module("transformers")
    for architecture in raw.get("architectures") or ():
        if architecture in _OF_THEIR_OWN:
            what, needs = _OF_THEIR_OWN[architecture]
            raise OptionError(
                f"model: {name} is {what}, whose code needs {needs}, but "
                f"{transformers.__version__} is installed. Train it in an environment of "
                "its own, from rows in the format of ms-swift, or use a model that "
                "transformers supports (docs/how-to/training.md)",
                "model",
            )
    if (
        raw.get("auto_map")
        and raw.get("model_type") not in transformers.CONFIG_MAPPING
        and not spec.trust_remote_code
    ):
        raise UsageError(
            f"model: {name} contains Python code, which is only run with trust_remote_code",
            parameters=("trust_remote_code",),
        )
