"""A vLLM server of one's own: started, waited for, shared and ended. A script with the mock
endpoint stands in for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from prill.errors import (
    EndpointError,
    MissingExtraError,
    TransportError,
    UsageError,
    install_command,
)
from prill.io.cache import DiskCache
from prill.io.store import read_verdicts
from prill.models.registry import make_model
from prill.models.vllm import VLLMModel
from prill.types import Usage
from tests.support.models.machine import ASK, FORM, STAND_IN, Machine


async def test_served_model_answers(machine: Machine) -> None:
    model = make_model(
        f"vllm:{machine.model}", max_model_len=2048, images=3, serve_options="--seed 5"
    )
    assert not machine.words, "nothing is started before it is asked for"
    reply = await model.complete(ASK, form=FORM)
    assert reply.fields["status"] == "success" and reply.tokens
    assert reply.usage == Usage(1, reply.usage.prompt_tokens, reply.usage.completion_tokens, 0, 0.0)
    assert model.name == "vllm/tiny"
    (words,) = machine.words
    assert (
        words.startswith(f"serve {machine.model} --host 127.0.0.1 ")
        and " --max-model-len 2048 " in words
    )
    assert (
        '--limit-mm-per-prompt {"image": 3, "video": 0}' in words
        and "--logprobs-mode processed_logprobs" in words
    )
    assert "--seed 5 --port " in words
    assert isinstance(model, VLLMModel)
    key = model.endpoint.key()
    assert len(key) > 20 and key not in words, (
        "every user of the machine can read the words of a process"
    )
    model.close()
    assert machine.all_ended()


async def test_equal_settings_share_a_server(machine: Machine) -> None:
    first, second = (VLLMModel(str(machine.model)) for _ in range(2))
    drawn = second.sampled(1.0, 1)
    await asyncio.gather(*(model.complete(ASK, form=FORM) for model in (first, second, drawn)))
    assert len(machine.words) == 1
    del first, second
    await drawn.complete(ASK, form=FORM)
    drawn.close()
    assert machine.all_ended()


def test_dropped_model_ends_its_server(machine: Machine) -> None:
    asyncio.run(VLLMModel(str(machine.model)).complete(ASK, form=FORM))
    assert machine.all_ended()


async def test_dead_start_keeps_its_log_and_shows_the_first_error(machine: Machine) -> None:
    end = "for i in $(seq 40); do echo frame $i; done; echo See root cause above."
    machine.script(
        "echo INFO loads; echo 'WARNING may cause errors like `OSError: too many files`'; "
        "echo '(Worker pid=7) ERROR 11-28 [core.py:866] ValueError: no room on the device,' "
        f"$VLLM_API_KEY >&2; {end}; echo 'RuntimeError: the engine ended'; exit 3"
    )
    model = VLLMModel(str(machine.model))
    with pytest.raises(EndpointError, match="vllm/tiny: vLLM exited with status 3; ") as caught:
        await model.complete(ASK)
    told = str(caught.value)
    assert (
        "the first error in it: (Worker pid=7) ERROR 11-28 [core.py:866] ValueError: no room"
        in told
    )
    assert "frame 40\n" in told and "frame 9\n" not in told
    log = Path(re.search(r"its log is in (\S+\.log);", told)[1])  # type: ignore[index]
    kept = log.read_text()
    log.unlink()
    assert kept.startswith("INFO loads\n") and "frame 9\n" in kept
    assert model.endpoint.key() not in kept + told
    with pytest.raises(EndpointError, match="exited with status 3"):
        await model.complete(ASK)
    assert len(machine.words) == 1 and machine.all_ended()


async def test_late_start_is_given_up(machine: Machine) -> None:
    machine.script("echo loading weights; exec sleep 600")
    with pytest.raises(
        EndpointError, match=r"vLLM was not ready after 2 s \(start_timeout sets the limit\); it"
    ):
        await VLLMModel(str(machine.model), start_timeout=2.0).complete(ASK)
    assert machine.all_ended()


async def test_stranger_on_the_port_is_no_server(machine: Machine) -> None:
    """Another program may have got the port, and answer with something that is no HTTP."""
    words = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[-1])))"
    talk = (
        "\nwhile True:\n    c = s.accept()[0]; c.recv(9999); c.sendall(b'220 mail at your "
        "service\\r\\n'); c.close()"
    )
    (machine.folder / "stranger.py").write_text(words + talk)
    machine.script(f'exec {shlex.quote(sys.executable)} {machine.folder}/stranger.py "$@"')
    with pytest.raises(EndpointError, match="vLLM was not ready after 3 s"):
        await VLLMModel(str(machine.model), start_timeout=3.0).complete(ASK)
    assert machine.all_ended()


async def test_death_in_a_run_is_told(machine: Machine) -> None:
    model = VLLMModel(str(machine.model), retries=0)
    await model.complete(ASK)
    os.kill(int(machine.noted("processes")[0].split()[0]), signal.SIGKILL)
    with pytest.raises(EndpointError, match=r"vLLM exited with status -?\d+"):
        for _ in range(100):
            with suppress(TransportError):  # of a call before its end is known
                await model.complete(ASK)
    assert machine.all_ended(), "what it had started ends with it"


async def test_kept_replies_outlive_the_server(machine: Machine, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "replies.sqlite")
    first = VLLMModel(str(machine.model), cache=cache)
    reply = await first.complete(ASK, form=FORM)
    first.close()
    again = await VLLMModel(str(machine.model), cache=cache).complete(ASK, form=FORM)
    assert (again.text, again.usage, len(machine.words)) == (reply.text, Usage(), 1), (
        "it is not even started"
    )
    (machine.model / "model.safetensors").write_bytes(b"other weights")
    third = VLLMModel(str(machine.model), cache=cache)
    assert (await third.complete(ASK, form=FORM)).usage.calls == 1
    third.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_server_ends_with_the_run(machine: Machine, tmp_path: Path, number: signal.Signals) -> None:
    final = {"caption": "done"}
    task = {"id": "k", "goal": "truth=success", "platform": "web"}
    rows = [{"id": f"t{i}", "task": task, "steps": [], "final": final} for i in range(500)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "t.jsonl",
        "-o",
        "v.jsonl",
        "--judge",
        "modular",
        "--model",
        f"vllm:{machine.model}",
        "--concurrency",
        "2",
    ]
    slow = ["--model.serve-options=--fault latency=0.2"]
    run = subprocess.Popen(
        [sys.executable, "-m", "prill", "score", *words, *slow],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    while not (tmp_path / "v.jsonl").exists() or not (tmp_path / "v.jsonl").read_text().count("\n"):
        assert run.poll() is None
        time.sleep(0.02)
    assert machine.noted("processes")
    run.send_signal(number)
    assert run.wait(120) == (-9 if number == signal.SIGKILL else 130)
    assert machine.all_ended()
    verdicts = list(read_verdicts(tmp_path / "v.jsonl"))
    assert verdicts and all(
        verdict.success and verdict.evaluator.model == "vllm/tiny" for verdict in verdicts
    )


def test_missing_vllm_names_the_extra(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("vllm"):
        pytest.skip("vLLM is installed here")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(
        MissingExtraError, match=re.escape(f"vllm is not installed; run: {install_command('vllm')}")
    ):
        make_model(f"vllm:{machine.model}")
    with pytest.raises(UsageError, match="serve_python: nowhere is not a Python interpreter"):
        make_model(f"vllm:{machine.model}", serve_python="nowhere")


def test_bad_folders_are_named(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none: not a model folder"):
        VLLMModel(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="bin: not a LoRA adapter folder"):
        VLLMModel(str(machine.model), adapter=str(machine.bin))
    with pytest.raises(UsageError, match="serve_options: No closing quotation"):
        VLLMModel("org/model", serve_options="--a 'b")


async def test_adapter_is_served_by_name(machine: Machine, tmp_path: Path) -> None:
    adapter = tmp_path / "tuned"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 10}')
    model = VLLMModel(str(machine.model), adapter=str(adapter))
    assert (await model.complete(ASK, form=FORM)).fields["status"] == "success"
    assert model.name == "vllm/tiny+tuned"
    assert f"--lora-modules vllm/tiny+tuned={adapter} --max-lora-rank 16" in machine.words[0]
    model.close()


EYES, WORDS = "model.visual.blocks.0.attn.qkv", "model.language_model.layers.0.self_attn.q_proj"


def adapted(folder: Path, layer: str) -> Path:
    """A LoRA adapter of one layer, without figures."""
    (adapter := folder / "tuned").mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8}')
    weights = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"base_model.model.{layer}.lora_A.weight": weights})
    data = len(header).to_bytes(8, "little") + header.encode()
    (adapter / "adapter_model.safetensors").write_bytes(data)
    return adapter


@pytest.mark.parametrize(("layer", "told"), [(EYES, True), (WORDS, False)])
async def test_adapter_of_the_vision_encoder_is_used(
    machine: Machine, tmp_path: Path, layer: str, told: bool
) -> None:
    adapter = adapted(tmp_path, layer)
    model = VLLMModel(str(machine.model), adapter=str(adapter))
    await model.complete(ASK, form=FORM)
    model.close()
    assert ("--enable-tower-connector-lora" in machine.words[0]) is told
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:30])
    with pytest.raises(UsageError, match="incomplete safetensors file"):
        VLLMModel(str(machine.model), adapter=str(adapter))


# Lines that vLLM 0.32 writes (vllm/lora/model_manager.py).
TOWER = (
    "WARNING [model_manager.py:254] LoRA with tower connector is enabled, but the model "
    "GLM4VForCausalLM does not support it. This will be ignored."
)
WRAPPER = (
    "WARNING [model_manager.py:496] Regarding GLM4VForCausalLM, no matching PunicaWrapper is "
    "found; {} will be ignored."
)
LAYER = (
    "WARNING LoRA target module {} (Odd) matched the deployment configuration but could not be "
    "wrapped by any LoRA layer implementation. It will be ignored."
)
HARMLESS = (
    "INFO Qwen2_5_VL supports adding LoRA to the tower modules. If needed, please set "
    "`enable_tower_connector_lora=True`."
)


@pytest.mark.parametrize(
    ("layer", "line", "refused"),
    [
        (EYES, TOWER, True),
        (EYES, WRAPPER.format("visual.blocks.0.attn.qkv"), True),
        (EYES, WRAPPER.format("visual.merger.mlp.0"), False),
        (WORDS, LAYER.format("language_model.model.layers.0.self_attn.qkv_proj"), True),
        (WORDS, LAYER.format("language_model.model.layers.0.mlp.gate_up_proj"), False),
        (WORDS, WRAPPER.format("visual.blocks.0.attn.q_proj"), False),
        (WORDS, HARMLESS, False),
        (EYES, "WARNING the setting seed will be ignored.", False),
    ],
)
async def test_adapter_that_is_not_taken_whole_is_refused(
    machine: Machine, tmp_path: Path, layer: str, line: str, refused: bool
) -> None:
    machine.script(f'echo {shlex.quote(line)} >&2\n{STAND_IN} "$@"')
    model = VLLMModel(str(machine.model), adapter=str(adapted(tmp_path, layer)))
    if refused:
        with pytest.raises(
            EndpointError, match="does not serve the adapter .*/tuned whole"
        ) as told:
            await model.complete(ASK, form=FORM)
        assert line[:100] in str(told.value)
    else:
        assert (await model.complete(ASK, form=FORM)).fields
        model.close()
    assert machine.all_ended()


async def test_other_interpreter_serves(machine: Machine) -> None:
    python = machine.bin / "python-with-vllm"
    # `python -m vllm.entrypoints.openai.api_server --model MODEL …`
    python.write_text(
        f'#!/bin/sh\nshift 3; echo $$ >> {machine.folder}/processes; {STAND_IN} serve "$@"\n'
    )
    python.chmod(0o755)
    model = VLLMModel(str(machine.model), serve_python=str(python))
    assert (await model.complete(ASK, form=FORM)).fields["status"] == "success"
    model.close()
    assert machine.noted("processes") and machine.all_ended() and not machine.words
