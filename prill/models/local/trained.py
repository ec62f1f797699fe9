"""Finds a model in a folder or on the Hugging Face Hub; checks that its training has finished."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from prill.errors import UsageError
from prill.io.lines import read_json

# A name on the hub, as huggingface_hub validates it: `gpt2`, or an owner and a name.
_HUB_NAME = re.compile(r"[\w-][\w.-]{0,95}(?:/[\w.-]{1,96})?")
# The record of a training: settings, data, metrics, and whether it has finished.
RECORD, FORMAT = "training.json", "prill training"


def read_record(folder: Path) -> dict[str, Any] | None:
    """Reads the record of a training, or returns None. Raises UsageError if it is unreadable."""
    path = folder / RECORD
    if not path.exists():
        return None
    remedy = "without it, the training cannot be resumed"
    return read_json(path, dict[str, Any], "damaged, it is not a JSON object", remedy)


def find_model(model: str | os.PathLike[str]) -> Path | None:
    """Returns a model's folder; None for a name that `from_pretrained` resolves.

    What is not a folder and has the form of a name on the Hugging Face Hub, such as
    `Qwen/Qwen3-VL-8B-Instruct`, is looked up there and in its cache when the model is loaded.

    Raises:
        UsageError: The folder contains no model, or one whose training has not finished; or the
            name is not in the cache, and HF_HUB_OFFLINE rules a download out.
    """
    folder = Path(model).expanduser()
    if folder.is_dir() or not _HUB_NAME.fullmatch(os.fspath(model)):
        expect_model(folder, model)
        return folder
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError:  # loading names the extra to install
        return None
    cached = isinstance(try_to_load_from_cache(os.fspath(model), "config.json"), str)
    if constants.HF_HUB_OFFLINE and not cached:
        raise UsageError(
            f"{model}: neither a folder nor a model in the cache of Hugging Face "
            f"({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE is set; run `hf download {model}` "
            "where there is a network, or give the folder of a model"
        )
    return None


def expect_model(folder: Path, name: object = None) -> None:
    """Raises UsageError if the folder contains no model, or one whose training has not finished.

    `name` is the folder's name in the message.
    """
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{name or folder}: not a model folder (it needs a config.json and weights)"
        )
    expect_trained(folder)


def expect_trained(folder: Path) -> None:
    """Raises UsageError if `prill train` has not finished these weights. Other folders pass."""
    record = read_record(folder)
    if (
        record is not None
        and str(record.get("format")).startswith(FORMAT)
        and not record.get("done")
    ):
        raise UsageError(
            f"{folder}: the training is not finished; run the same prill train command to resume it"
        )
