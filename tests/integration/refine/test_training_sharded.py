"""A training whose processes share the weights: they are gathered at its end, or it has not ended.
TERM stops it.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.refine.training.checkpoints import last_checkpoint
from prill.refine.training.spec import TrainSpec
from prill.refine.training.train import train_rows as train
from tests.support.refine.launching import TRAINS, command, train_on_two_processes, write_rows

pytestmark = TRAINS


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows"))


def settings(model: Path, **changed: Any) -> TrainSpec:
    given: dict[str, Any] = {"steps": 2, "batch": 4, "rank": 2, "checkpoint_every": 1, **changed}
    return TrainSpec(model=str(model), **given)


def numbers(path: Path) -> int:
    from safetensors.torch import load_file

    return sum(weight.numel() for weight in load_file(path).values())


@pytest.fixture(scope="module")
def sharded(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Adapters and all weights, each in the folder of its method, trained with state in shards, as
    accelerate's defaults have it.
    """
    folder = tmp_path_factory.mktemp("sharded")
    words = ["policy", rows, "--steps", 2, "--batch", 4, "--checkpoint-every", 2]
    words += ["--model", tiny_model("qwen2")]
    lora, full = (["-o", folder / method, "--method", method] for method in ("lora", "full"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("ACCELERATE_USE_FSDP", "true")
        patch.setenv("FSDP_VERSION", "2")
        patch.setenv("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT")
        patch.setenv("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP")
        train_on_two_processes(*words, *lora, "+", *words, *full, script="sharded_training")
    return folder


@pytest.mark.parametrize(
    ("method", "name"), [("lora", "adapter_model.safetensors"), ("full", "model.safetensors")]
)
def test_fsdp_leaves_whole_weights(sharded: Path, method: str, name: str) -> None:
    """transformers then writes no weights at the end."""
    out = sharded / method
    record = json.loads((out / "training.json").read_bytes())
    assert record["done"] and record["processes"] == 2
    trained: int = record["parameters"]["trained"]
    assert numbers(out / name) == trained
    shards = list((out / "checkpoints/checkpoint-2").glob("pytorch_model_fsdp_0/*.distcp"))
    assert len(shards) == 2  # it was sharded
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    assert last_checkpoint(out) is None


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_weights_not_gathered_are_not_done(
    tiny_model: Callable[[str], Path],
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
) -> None:
    """Where the library writes a part of the weights without an error, or none; the same call goes
    on from the checkpoint.
    """
    spec, out = settings(tiny_model("qwen2")), tmp_path / "out"
    import transformers
    from safetensors.torch import load_file, save_file

    saved = transformers.Trainer.save_model

    def save_a_part(self: Any, folder: str | None = None, _internal_call: bool = False) -> None:
        if _internal_call or share:
            saved(self, folder, _internal_call)
        if not _internal_call and share:
            path = Path(str(folder), "adapter_model.safetensors")
            weights = load_file(path)
            save_file(
                {name: weights[name] for name in sorted(weights)[: int(share * len(weights))]}, path
            )

    with monkeypatch.context() as patch:
        patch.setattr(transformers.Trainer, "save_model", save_a_part)
        with pytest.raises(
            UsageError, match="weights were gathered from its processes.*checkpoint-2 has them"
        ):
            train(spec, rows, out)
    assert not json.loads((out / "training.json").read_bytes())["done"]
    assert not (out / "adapter_model.safetensors").exists()
    train(spec, rows, out)
    record = json.loads((out / "training.json").read_bytes())
    assert (
        record["done"]
        and numbers(out / "adapter_model.safetensors") == record["parameters"]["trained"]
    )


def test_term_leaves_a_checkpoint(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    """As a scheduler that takes the machine back sends it: the step is finished, and written
    down.
    """
    out = tmp_path / "out"
    words = [
        "prill",
        "train",
        "policy",
        rows,
        "-o",
        out,
        "--model",
        tiny_model("qwen2"),
        "--batch",
        4,
    ]
    run = command(*words, "--steps", 100_000, "--checkpoint-every", 3)
    ended = threading.Event()
    try:
        while last_checkpoint(out) is None and run.poll() is None:
            ended.wait(0.05)
        assert run.poll() is None
        begun = last_checkpoint(out)
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 130, said
    kept = last_checkpoint(out)
    assert (
        begun is not None
        and kept is not None
        and f"step {kept.name.rpartition('-')[2]} of 100000" in said.decode()
    )
    assert not json.loads((out / "training.json").read_bytes())["done"]
