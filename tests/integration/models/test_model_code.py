"""Code in the folders of models and adapters: no way of loading one runs it, asks whether to run
it, or unpickles.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import PrillError
from prill.models.local.choices import load_chooser
from prill.models.local.weights import check_adapter, load, read_window
from prill.papers.embedders import LocalEmbedder
from prill.papers.mind2web.pages.ranking import CrossEncoder
from prill.papers.mind2web.training import open_page_base
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import open_base

needs_torch = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name)
        for name in ("torch", "transformers", "trl", "peft", "datasets.arrow_dataset")
    ),
    reason="not installed: pip install '.[train]'",
)
CODE = """
import os
open({mark!r}, "w").close()
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast, ProcessorMixin
class Config(PreTrainedConfig):
    model_type = "prill-canary"
class Model(PreTrainedModel):
    config_class = Config
class Words(PreTrainedTokenizerFast):
    pass
class Reader(ProcessorMixin):
    pass
def generate(model, **given):
    pass
"""  # noqa: E501
AUTO = {
    "AutoConfig": "canary.Config",
    "AutoProcessor": "canary.Reader",
    "AutoTokenizer": ["canary.Words", "canary.Words"],
    **{
        f"AutoModel{what}": "canary.Model"
        for what in (
            "",
            "ForCausalLM",
            "ForSeq2SeqLM",
            "ForImageTextToText",
            "ForSequenceClassification",
        )
    },
}
EXPLICIT = "trust_remote_code"


@pytest.fixture
def canary(
    tmp_path: Path, tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A folder that brings Python code, of a model that transformers knows (`known`) or not; who is
    asked says yes.
    """
    monkeypatch.setattr("builtins.input", lambda prompt="": "y")

    def folder(kind: str) -> Path:
        made = shutil.copytree(tiny_model("qwen2"), tmp_path / kind)
        (made / "custom_generate").mkdir()
        for file in (made / "canary.py", made / "custom_generate/generate.py"):
            file.write_text(CODE.format(mark=str(tmp_path / "ran")), encoding="utf-8")
        for name in (
            "config.json",
            "tokenizer_config.json",
            "processor_config.json",
            "preprocessor_config.json",
        ):
            file = made / name
            values = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            values |= {"auto_map": AUTO}
            if kind == "unknown":
                values |= {
                    "model_type": "prill-canary",
                    "architectures": ["Model"],
                    "tokenizer_class": "Words",
                }
            file.write_text(json.dumps(values), encoding="utf-8")
        if kind == "unknown":
            (made / "tokenizer.json").unlink()
        return made

    return folder


WAYS: dict[str, Callable[[Path], object]] = {
    "local model": lambda folder: load(folder, "cpu", None),
    "its window": read_window,
    "chooser": lambda folder: load_chooser(str(folder), device="cpu"),
    "ranker": lambda folder: CrossEncoder(folder, device="cpu")._load(),
    "embedder": lambda folder: LocalEmbedder(folder)._embed(["a"]),
    "training": lambda folder: open_base(TrainSpec(model=str(folder))).outline(
        TrainSpec(model=str(folder))
    ),
    "training of pages": lambda folder: open_page_base(
        TrainSpec(model=str(folder), trains="ranker", method="full")
    ),
}


@needs_torch
@pytest.mark.parametrize("kind", ["known", "unknown"])
@pytest.mark.parametrize("way", WAYS)
def test_no_way_runs_code_of_a_folder(
    way: str, kind: str, canary: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = canary(kind)
    if kind == "unknown":
        with pytest.raises(PrillError, match="contains Python code") as told:
            WAYS[way](folder)
        assert str(folder) in str(told.value)
    else:
        try:
            WAYS[way](folder)
        except PrillError as problem:  # a language model is no ranker
            assert way in ("ranker", "training of pages") and EXPLICIT not in str(problem)
    assert not (tmp_path / "ran").exists()


@needs_torch
def test_code_is_run_where_one_says_so(canary: Callable[[str], Path], tmp_path: Path) -> None:
    """Which shows that the folder's code would have been run above."""
    with suppress(PrillError):  # it is no whole model
        open_base(TrainSpec(model=str(canary("unknown")), trust_remote_code=True))
    assert (tmp_path / "ran").exists()


def test_every_loading_says_that_no_code_is_run() -> None:
    """Without the word transformers asks on the terminal; PEFT has no such code."""
    silent = []
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            loads = node.func.attr in (
                "from_pretrained",
                "from_config",
            ) and "PeftModel" not in ast.unparse(node.func)
            if loads and EXPLICIT not in {word.arg for word in node.keywords}:
                silent.append(f"{file}:{node.lineno}")
    assert not silent


def sources() -> list[Path]:
    root = Path(prill.__file__).parent
    return [
        Path(folder) / name
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name[-3:] == ".py"
    ]


class Evil:
    """What a pickle may hold: a call that is made when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.mark), "w")


def adapter(folder: Path, data: bytes, **settings: Any) -> Path:
    folder.mkdir()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 2,
        "target_modules": ["q_proj"],
        **settings,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "adapter_model.bin").write_bytes(data)
    return folder


def archive(value: object, path: Path) -> bytes:
    import torch

    torch.save(value, path)
    return path.read_bytes()


@needs_torch
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("form", ["pickle", "archive"])
@pytest.mark.parametrize("what", ["adapter", "chooser's adapter", "model"])
def test_no_pickle_of_a_folder_is_run(
    what: str, form: str, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    mark, base = tmp_path / "ran", tiny_model("qwen2")
    value = {"w": Evil(mark)}
    data = pickle.dumps(value, 2) if form == "pickle" else archive(value, tmp_path / "saved")
    with pytest.raises(PrillError, match="cannot be loaded"):
        if what == "model":
            folder = shutil.copytree(
                base, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
            )
            (folder / "pytorch_model.bin").write_bytes(data)
            load(folder, "cpu", None)
        elif what == "adapter":
            load(base, "cpu", None, adapter(tmp_path / "adapter", data))
        else:
            load_chooser(str(base), adapter=str(adapter(tmp_path / "adapter", data)), device="cpu")
    assert not mark.exists()


def test_an_adapter_names_no_module_to_import(tmp_path: Path) -> None:
    """PEFT imports the module that `megatron_core` names."""
    folder = adapter(tmp_path / "adapter", b"", megatron_config={}, megatron_core="antigravity")
    with pytest.raises(PrillError, match="adapter_config.json: megatron_config"):
        check_adapter(folder)
