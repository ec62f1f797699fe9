"""Language models by name: one at an OpenAI-compatible endpoint, the embedded one, or one that is loaded or served here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prill.cache import DiskCache
from prill.errors import UsageError
from prill.protocols import LanguageModel
from prill.registry import Maker, OptionError, load_object, options_of, read_options

MODELS = {
    "NAME": ("a model at an OpenAI-compatible endpoint, by its name there", "prill.models.client:OpenAIModel"),
    "embedded": ("a small model in this process (llama.cpp)", "prill.models.embedded:EmbeddedModel"),
    "local:DIR": ("a folder with a model for transformers", "prill.models.local.model:LocalModel"),
    "vllm:MODEL": ("a model that a vLLM server of one's own serves", "prill.models.vllm:VLLMModel"),
}


def make_model(
    model: str | Mapping[str, Any] | LanguageModel, *, place: str = "model", lax: bool = False, **options: Any
) -> LanguageModel:
    """The model of a name, with its options; a table `{name = "…", …}` holds both, and a model comes back as it is.

    `place` and `lax` as in `prill.registry.read_options`. Raises UsageError.
    """
    if isinstance(model, Mapping):
        table = dict(model)
        if odd := next((key for key in table if key in ("model", "place", "lax")), None):
            raise OptionError(f"{place}: a model has no option {odd!r}; its name is `name`", odd)
        return make_model(str(table.pop("name", "")), place=place, lax=lax, **{**options, **table})
    if not isinstance(model, str):
        if options:
            raise UsageError(f"{place}: a model that is made already takes no options ({', '.join(options)})")
        if not hasattr(model, "complete"):
            raise OptionError(f"{place}: expected a language model, or its name, got {model!r}", "model")
        return model
    if not model:
        raise UsageError(f"{place}: a model needs a name")
    read = partial(read_options, what=f"model {model!r}", place="", parts={DiskCache: reply_cache}, lax=lax)
    maker = model_maker(model)
    if (kind := _kind(model)) != "embedded":
        name = model if kind == "NAME" else model.partition(":")[2]
        options = {"path" if kind == "local:DIR" else "model": name, **options}
    return maker(**read(maker, options))  # type: ignore[no-any-return]


def model_maker(model: str) -> Maker:
    """The class behind a model's name."""
    return load_object(MODELS[_kind(model)][1])  # type: ignore[no-any-return]


def _kind(model: str) -> str:
    """Which of MODELS a name belongs to. Names at endpoints may hold colons, too."""
    if model == "embedded":
        return model
    prefixes = {kind.partition(":")[0] + ":": kind for kind in MODELS if ":" in kind}
    return next((kind for prefix, kind in prefixes.items() if model.startswith(prefix)), "NAME")


def model_options(model: object) -> tuple[str, ...]:
    """The names of the options of a model that is named or described; none for one that is made already."""
    name = model.get("name") if isinstance(model, Mapping) else model
    if not isinstance(name, str):
        return ()
    return tuple(option for option in options_of(model_maker(name)) if option not in ("model", "path"))


def reply_cache(folder: Any, place: str) -> DiskCache:
    """The cache of replies in a folder; a cache comes back as it is."""
    return folder if isinstance(folder, DiskCache) else DiskCache(Path(folder) / "replies.sqlite")
