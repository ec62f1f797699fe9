"""The real vLLM on the CPU, in an environment of its own (`make test-vllm`), with tiny random
models: only form is checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.errors import EndpointError, TruncatedError
from prill.io.store import read_verdicts
from prill.models.local.model import LocalModel
from prill.models.vllm import VLLMModel
from prill.protocols import Image, Message
from prill.types import Verdict
from tests.support.models import tiny
from tests.support.paths import ROOT

PYTHON = os.environ.get("PRILL_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(
        not Path(PYTHON).is_file(), reason="no environment with vLLM: make test-vllm"
    ),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]
# What vLLM wants on a CPU, and no telemetry, nor anything fetched.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONPATH": str(ROOT),
}
OPTIONS = (
    "--model.serve-options=--enforce-eager --max-num-seqs 4",
    "--model.dtype",
    "bfloat16",
    "--model.images",
    "2",
)


@pytest.fixture(scope="module", autouse=True)
def vllm_can_be_imported() -> None:
    done = subprocess.run(
        [PYTHON, "-c", "import vllm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"vLLM does not run on this processor: {done.stderr[-500:]}")


@pytest.fixture
def folder(tmp_path: Path, torchvision_beside_cpu_torch: Callable[[], None]) -> Path:
    pytest.importorskip("transformers")
    torchvision_beside_cpu_torch()
    for i in range(4):
        Picture.linear_gradient("L").rotate(90 * i).resize((320, 180)).convert("RGB").save(
            tmp_path / f"{i}.png"
        )
    task = {"id": "k", "goal": "Open the page", "platform": "web"}
    final = [{"screenshot": f"{i}.png", "caption": f"page {i}"} for i in range(4)]
    rows = [
        {"id": f"t{i}", "task": task, "steps": [], "final": state} for i, state in enumerate(final)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def judged(folder: Path, kind: str, judge: str) -> list[Verdict]:
    """Verdicts by a tiny model of that kind, which `prill score` serves for the time of its run."""
    import torch

    model, reader = tiny.build(kind, served=True)
    words, likely = getattr(reader, "tokenizer", reader), model.lm_head.weight
    with torch.no_grad():
        # quotation marks come soon, so that the texts in its replies end
        likely[words.convert_tokens_to_ids('"')] *= 20
        # Either "success" or "failure" is always likelier than "insufficient-evidence".
        verdict = likely[words.convert_tokens_to_ids("s")].clone()
        for token, index in words.get_vocab().items():
            if token[0] in "sfi":
                likely[index] = verdict * {"s": 1, "f": -1, "i": 0}[token[0]]
    tiny.save(model.bfloat16(), reader, folder / kind)
    asked = ["t.jsonl", "-o", "v.jsonl", "--judge", judge, "--model", f"vllm:{kind}"]
    command = [
        sys.executable,
        "-m",
        "prill",
        "score",
        *asked,
        "--model.serve-python",
        PYTHON,
        *OPTIONS,
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), (
        done.stderr
    )  # 3: a random model may leave one without a verdict, as processors round otherwise
    return list(read_verdicts(folder / "v.jsonl"))


@pytest.mark.parametrize(("kind", "judge"), [("qwen2", "modular"), ("qwen2_5_vl", "vlm")])
def test_real_vllm_judges_by_serve(folder: Path, kind: str, judge: str) -> None:
    verdicts = judged(folder, kind, judge)
    assert {verdict.id for verdict in verdicts} == {f"t{i}" for i in range(4)}
    assert {verdict.unscored for verdict in verdicts} <= {None, "no_evidence", "truncated"}, (
        "the server answered every time"
    )
    for verdict in (scored := [verdict for verdict in verdicts if verdict.unscored is None]):
        assert verdict.evaluator.model == f"vllm/{kind}"
        assert verdict.usage.calls == 1 and verdict.usage.images == (judge == "vlm")
        assert verdict.score is not None and 0.0 < verdict.score < 1.0, (
            "the probability of a token, not a word"
        )
    assert scored


async def test_served_answers_as_in_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peft = pytest.importorskip("peft")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    kind = "qwen2_5_vl"
    weights, reader = tiny.build(kind, served=True)
    tiny.save(weights, reader, folder / kind)
    lora = peft.LoraConfig(
        r=8,
        target_modules=r".*language_model.*(q|v)_proj",
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    peft.get_peft_model(weights, lora).save_pretrained(folder / "tuned")
    ask = (Message("user", ("What is here?", Image(str(folder / "1.png")))),)
    adapter, said = str(folder / "tuned"), {}
    served = VLLMModel(
        str(folder / kind),
        adapter=adapter,
        dtype="float32",
        images=2,
        serve_python=PYTHON,
        serve_options="--enforce-eager --max-num-seqs 4",
    )
    local = (LocalModel(folder / kind, device="cpu", adapter=tuned) for tuned in (None, adapter))
    for model in (served, *local):
        with pytest.raises(TruncatedError) as cut:  # it never ends by itself
            await model.complete(ask, max_tokens=4)
        # an unpaired surrogate at the end
        said[model.name] = str(cut.value).replace("\N{REPLACEMENT CHARACTER}", "")
    served.close()
    assert said[f"vllm/{kind}+tuned"] == said[f"local/{kind}+tuned"] != said[f"local/{kind}"]


async def test_adapter_of_the_eyes_is_applied_or_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen2.5-VL answers otherwise with it than without; GLM-4V would be served without it."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    ask = (Message("user", ("What is here?", Image(str(folder / "1.png")))),)
    kind = "qwen2_5_vl"
    weights, reader = tiny.build(kind, served=True)
    tiny.save(weights, reader, folder / kind)
    lora = peft.LoraConfig(
        r=8, lora_alpha=64, target_modules=r".*visual.*(qkv|proj)", init_lora_weights=False
    )
    peft.get_peft_model(weights, lora).save_pretrained(folder / "eyes")
    said = []
    for adapter in (None, str(folder / "eyes")):
        served = VLLMModel(
            str(folder / kind),
            adapter=adapter,
            dtype="float32",
            images=1,
            serve_python=PYTHON,
            serve_options="--enforce-eager --max-num-seqs 4",
        )
        with pytest.raises(TruncatedError) as cut:  # it never ends by itself
            await served.complete(ask, max_tokens=4)
        served.close()
        said.append(str(cut.value))
    assert said[0] != said[1], "the adapter has an effect"

    (glm := folder / "glm").mkdir()
    tiny.glm4v(glm)
    (adapter_of_glm := folder / "glm-eyes").mkdir()
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": "query_key_value"}
    (adapter_of_glm / "adapter_config.json").write_text(json.dumps(settings))
    from safetensors.torch import save_file

    layers = {
        "transformer.vision.transformer.layers.0.attention.query_key_value": (128, 384),
        "transformer.encoder.layers.0.self_attention.query_key_value": (256, 512),
    }
    tensors = {
        f"base_model.model.{layer}.lora_{side}.weight": torch.randn(shape)
        for layer, (read, written) in layers.items()
        for side, shape in (("A", (8, read)), ("B", (written, 8)))
    }
    save_file(tensors, adapter_of_glm / "adapter_model.safetensors")
    refused = VLLMModel(
        str(glm),
        adapter=str(adapter_of_glm),
        images=1,
        serve_python=PYTHON,
        serve_options="--enforce-eager --max-num-seqs 4 --load-format dummy",
    )
    with pytest.raises(EndpointError, match="does not serve the adapter .*GLM4VForCausalLM"):
        await refused.complete((Message("user", ("What is here?",)),), max_tokens=4)
