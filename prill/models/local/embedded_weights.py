"""The embedded model as a folder that transformers, PEFT and TRL take as any other model.

A GGUF file holds weights of four bits. Here they become plain float32 numbers, once, in prill's cache folder: 540 MB for
SmolLM2-135M, made in about half a minute.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prill.cache import cache_folder
from prill.errors import EndpointError, MissingExtra, UsageError
from prill.models.embedded import bundled_gguf
from prill.models.local.torchvision import mend_torchvision
from prill.models.replies import excerpt

_FORM = 1  # raise it when the folder's content changes


def folder_of_embedded(gguf: str | os.PathLike[str] | None = None, *, extra: str = "train") -> Path:
    """The folder with the weights of the bundled model, or of another GGUF file; made when it is not there yet.

    Several processes may ask at once: one makes it. `extra` is what a missing package is said to belong to. Raises
    UsageError, MissingExtra, and EndpointError for a file that transformers cannot read.
    """
    file = Path(gguf or bundled_gguf())
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    with file.open("rb") as opened:
        content = hashlib.file_digest(opened, "sha256").hexdigest()[:12]
    folder = cache_folder() / "weights" / f"{file.stem}-{content}-{_FORM}"
    if folder.is_dir():
        return folder
    with _alone(folder):
        if not folder.is_dir():  # another process may have made it meanwhile
            _make(file, folder, extra)
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else makes the folder within this; a process that dies lets go of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _make(file: Path, folder: Path, extra: str) -> None:
    """The folder takes its place when it is whole."""
    try:
        torch = importlib.import_module("torch")
        mend_torchvision()
        transformers = importlib.import_module("transformers")
        importlib.import_module("gguf")
    except ImportError as error:
        raise MissingExtra(error.name or "transformers", extra) from None
    print(f"unpacking {file.name} for transformers, once: {folder}", file=sys.stderr)
    part = folder.with_suffix(".part")  # whoever has the lock owns it; what a crash left there is of no use
    shutil.rmtree(part, ignore_errors=True)
    names = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **names)
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **names)
    except (ImportError, OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise EndpointError(f"transformers cannot read {file}: {excerpt(str(error), 300)}") from error
    _plain(model)
    try:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _plain(model: Any) -> None:
    """The numbers are plain by now, but transformers still calls the model quantised, and would not train it."""
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            delattr(model, name)
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder}: cannot be written: {error.strerror or error}; $PRILL_CACHE_DIR names another place")
