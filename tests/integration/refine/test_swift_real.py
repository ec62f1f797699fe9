"""Two steps by ms-swift's own trainer, in an environment of its own (`make test-frameworks`), and
its names for CogAgent.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.errors import EndpointError
from prill.models.local.weights import check_adapter, load
from prill.refine.training.checkpoints import last_checkpoint
from prill.refine.training.spec import TrainSpec, presets
from prill.refine.training.train import train_rows as train

HOME = Path(os.environ.get("PRILL_FRAMEWORKS", "/nowhere"), "ms-swift")
PYTHON = str(HOME / "bin/python")
REGISTRY = """
import json
from swift.model import MODEL_MAPPING
found = {}
for name, meta in MODEL_MAPPING.items():
    for group in meta.model_groups:
        for model in group.models:
            found.setdefault(model.hf_model_id, []).append([name, meta.requires + (group.requires or [])])
print("\\n" + json.dumps(found))
"""  # noqa: E501
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the libraries' own, about their deprecations
    pytest.mark.slow,
    pytest.mark.skipif(
        not (HOME / ".installed").exists(),
        reason="no environment with ms-swift: make test-frameworks",
    ),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    caches = {"HF_HOME": str(tmp_path / "hf"), "MODELSCOPE_CACHE": str(tmp_path / "modelscope")}
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **caches,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    Image.new("RGB", (112, 84), "red").save(tmp_path / "a.png")
    lines = []
    for number in range(6):
        prompt = [
            {"role": "system", "content": "Act."},
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": f"Goal {number}"}],
            },
        ]
        answer = [{"role": "assistant", "content": f"click [{number}]"}]
        lines.append(
            {"images": ["a.png"], "prompt": prompt, "completion": answer, "task": f"t{number}"}
        )
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def spec_of(model: Path, **changed: Any) -> TrainSpec:
    settings: dict[str, Any] = {
        "rank": 4,
        "alpha": 8,
        "dropout": 0.0,
        "targets": "attention",
        "learning_rate": 1e-2,
    }
    settings |= {
        "steps": 2,
        "batch": 2,
        "log_every": 1,
        "checkpoint_every": 1,
        "max_length": 1024,
        "held_out": 0.3,
    }
    # Found by its name where the model has one.
    settings |= {"model_type": "qwen2_5_vl", "options": {"template": "qwen2_5_vl"}}
    return TrainSpec(
        model=str(model),
        engine="swift",
        engine_python=PYTHON,
        dtype="float32",
        device="cpu",
        **{**settings, **changed},
    )


def test_swift_trains_two_steps(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, told = tiny_model("qwen2_5_vl"), list[int]()
    spec = spec_of(model)
    with monkeypatch.context() as patch:  # as one that was killed after its first checkpoint
        patch.setattr("prill.refine.training.swift._restore_weights", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(spec, rows, tmp_path / "out")
    killed = tmp_path / "out/checkpoints/checkpoint-2/trainer_state.json"
    killed.write_text(killed.read_text()[:9])
    assert (last_checkpoint(tmp_path / "out") or Path()).name == "checkpoint-1"
    folder = train(spec, rows, tmp_path / "out", progress=lambda now: told.append(now.step))
    log = (folder / "swift.log").read_text()
    assert log.count("{'loss'") == 3, "two steps, and one of the run that resumed after the first"
    record = json.loads((folder / "training.json").read_bytes())
    assert record["done"]
    assert [step for step, _ in record["figures"]["losses"]] == [1, 2]
    assert [step for step, _ in record["figures"]["held_out_losses"]] == [1, 2]

    from safetensors.torch import load_file

    weights = load_file(folder / "adapter_model.safetensors")
    assert all(".self_attn." in name and "visual" not in name for name in weights)
    assert any(float(part.abs().sum()) > 0 for name, part in weights.items() if "lora_B" in name), (
        "it has learnt something"
    )
    check_adapter(folder)
    assert load(model, "cpu", None, folder), "PEFT takes it for this model"


def test_swifts_error_is_told(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    with pytest.raises(EndpointError) as failure:
        train(spec_of(tiny_model("qwen2_5_vl"), targets="no_such_layer"), rows, tmp_path / "out")
    assert "no_such_layer" in str(failure.value)
    assert str(failure.value).startswith("ms-swift ")


def test_swift_knows_cogagent_by_our_names() -> None:
    done = subprocess.run([PYTHON, "-c", REGISTRY], capture_output=True, text=True, check=True)
    registry = json.loads(done.stdout.splitlines()[-1])
    engines = [
        preset.settings for preset in presets().values() if preset.settings.get("engine") == "swift"
    ]
    ours = {settings["model"]: settings["model_type"] for settings in engines}
    assert ours == {
        "zai-org/cogagent-chat-hf": "cogagent_chat",
        "zai-org/cogagent-9b-20241220": "chatglm4v",
    }
    for model, kind in ours.items():
        assert kind in [name for name, _ in registry[model]]
    ((_, needs),) = registry["zai-org/cogagent-chat-hf"]
    assert "transformers<4.42" in needs, "what docs/how-to/cogagent.md says of its environment"
