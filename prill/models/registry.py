"""The registry of language models."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prill.config.registry import (
    Maker,
    Option,
    OptionError,
    list_options,
    load_object,
    read_options,
)
from prill.config.values import PartConfig
from prill.errors import UsageError
from prill.io.cache import DiskCache
from prill.protocols import LanguageModel

MODELS = {
    "NAME": (
        "a model at an OpenAI-compatible endpoint, by its name there",
        "prill.models.client:OpenAIModel",
    ),
    "embedded": (
        "a small model in this process (llama.cpp)",
        "prill.models.embedded:EmbeddedModel",
    ),
    "local:MODEL": (
        "a model of transformers in this process, from a folder or the Hugging Face Hub",
        "prill.models.local.model:LocalModel",
    ),
    "vllm:MODEL": (
        "a model served by a vLLM server that prill starts",
        "prill.models.vllm:VLLMModel",
    ),
}
_OWN = "module:Object"


class ModelConfig(PartConfig):
    """A language model by name, with its options.

    Example: `ModelConfig("gpt-4o", base_url="http://localhost:8000/v1")`. With an empty name
    (`""`), the options apply to models that are named elsewhere, for example in a judge file.
    """

    __slots__ = ()
    kind = "model"
    kinds = "models"
    may_be_nameless = True

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the model that a table names."""
        name = table.get("name")
        if not isinstance(name, str) or not name:
            return {}
        named = model_options(name)
        return {
            option: value
            for option, value in list_options(model_maker(name)).items()
            if option in named
        }

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns the name patterns of the models that have an option."""
        return [form for form in MODELS if option in model_options(form)]


ModelLike = ModelConfig | str | Mapping[str, Any] | LanguageModel


def make_model(
    model: ModelLike, *, place: str = "model", lax: bool = False, **options: Any
) -> LanguageModel:
    """Makes a language model by name, with its options.

    Args:
        model: A name at an endpoint, `embedded`, `local:MODEL`, `vllm:MODEL`, `file.py:Object` or
            `package.module:Object` of your own, a table with `name` and options, a configuration,
            or a model, which is returned unchanged.
        place: The path of the description, for messages.
        lax: Read numbers and booleans from text, for the command line.
        **options: The model's options. Those in a table take precedence.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: The name is empty, or options are given for an existing model object.
    """
    model, options = ModelConfig.described(model, options, place)
    if not isinstance(model, str):
        if not hasattr(model, "complete"):
            raise OptionError(
                f"{place}: expected a language model or its name, got {model!r}", "model"
            )
        return _covered(model, place)
    if not model:
        raise UsageError(f"{place}: a model needs a name")
    read = partial(
        read_options, what=f"model {model!r}", place="", parts={DiskCache: reply_cache}, lax=lax
    )
    maker = model_maker(model)
    kind = _kind(model)
    if kind == _OWN:
        made = maker(**read(maker, options))
        if inspect.isclass(made) or not hasattr(made, "complete"):
            raise OptionError(
                f"{place}: {model} did not return a language model (method complete is missing)",
                "model",
            )
        return _covered(made, model)
    if kind != "embedded":
        name = model if kind == "NAME" else model.partition(":")[2]
        options = {"path" if kind == "local:MODEL" else "model": name, **options}
    return maker(**read(maker, options))  # type: ignore[no-any-return]


def _covered(model: Any, name: str) -> LanguageModel:
    """Returns a custom model whose calls count in the active budgets.

    Raises UsageError if the model does not record its costs.
    """
    from prill.models.ledger import Ledger, current_budgets

    ledger, budgets = getattr(model, "ledger", None), current_budgets()
    if isinstance(ledger, Ledger):
        ledger.draw_from(budgets)
    elif any(budget.usd is not None for budget in budgets):
        raise UsageError(
            f"{name}: this model does not report the cost of its calls, so a budget cannot "
            "include it; give it a `ledger` (prill.models.ledger.Ledger) that records the "
            "cost, or leave out the budget"
        )
    return model  # type: ignore[no-any-return]


def asks_a_model(maker: Maker) -> bool:
    """Returns whether a maker takes a language model.

    The model of a part with its own weights is a name, a file or a folder.
    """
    option = list_options(maker).get("model")
    return option is not None and option.type_name != "str"


def take_model_options(maker: Maker, model: object, options: dict[str, Any]) -> dict[str, Any]:
    """Takes those options out that belong to a part's model, and returns them."""
    own = list_options(maker)
    names = model_options(model) if asks_a_model(maker) else ()
    return {key: options.pop(key) for key in names if key in options and key not in own}


def part_model(
    model: Any, at: str, place: str, lax: bool, settings: Mapping[str, Any]
) -> LanguageModel:
    """Makes the model of a part. Errors name the path of the model, or that of the part, `place`,
    where the options stand next to the part's own.
    """
    try:
        return make_model(model, place=at, lax=lax, **settings)
    except OptionError as error:
        if str(error).startswith((at, place or "\0")):
            raise
        raise OptionError(f"{place}{error}", error.option) from None


def model_maker(model: str) -> Maker:
    """Returns the maker for a model name; for a custom object that is a model, a maker without
    options.
    """
    kind = _kind(model)
    made = load_object(model if kind == _OWN else MODELS[kind][1])
    return made if inspect.isclass(made) or inspect.isroutine(made) else lambda: made


def _kind(model: str) -> str:
    """Returns the entry of MODELS that a name belongs to, or that of custom objects."""
    if model == "embedded":
        return model
    prefixes = {kind.partition(":")[0] + ":": kind for kind in MODELS if ":" in kind}
    return next(
        (kind for prefix, kind in prefixes.items() if model.startswith(prefix)),
        _OWN if _is_own(model) else "NAME",
    )


def _is_own(model: str) -> bool:
    """Returns whether a name is `file.py:Object`, or `package.module:Object` of an installed
    package.

    Names at endpoints contain colons too (`llama3.1:8b`, `deepseek/r1:free`, `mistral:latest`), so
    a module must contain a dot.
    """
    place, _, name = model.rpartition(":")
    if not name.isidentifier():
        return False
    parts = place.split(".")
    return place.endswith(".py") or (
        len(parts) > 1 and all(map(str.isidentifier, parts)) and find_spec(parts[0]) is not None
    )


def price_table(model: ModelLike | None) -> str | None:
    """Returns the path of a described model's price table; None without one."""
    described = None if model is None else ModelConfig.read(model, "model")
    prices = described.options.get("prices") if isinstance(described, ModelConfig) else None
    return prices if isinstance(prices, str) else None


def model_options(model: object) -> tuple[str, ...]:
    """Returns the option names of a model name or description; none for a model object."""
    if isinstance(model, ModelConfig):
        model = model.name
    name = model.get("name") if isinstance(model, Mapping) else model
    if not isinstance(name, str):
        return ()
    named = () if _kind(name) == _OWN else ("model", "path")
    return tuple(option for option in list_options(model_maker(name)) if option not in named)


def reply_cache(folder: Any, place: str) -> DiskCache:
    """Returns the reply cache in a folder; a cache is returned unchanged. Raises OptionError."""
    if isinstance(folder, DiskCache):
        return folder
    if not isinstance(folder, str | os.PathLike) or not folder:
        raise OptionError(
            f"{place}: expected the name of a folder, got {folder!r}", place.rpartition(".")[2]
        )
    return DiskCache(Path(folder) / "replies.sqlite")
