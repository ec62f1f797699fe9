"""The real vLLM on the CPU (`make test-vllm`): two models of one process take turns, and none
outlives it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.models.test_vllm_real import ENVIRONMENT, PYTHON
from tests.support.models import tiny
from tests.support.models.machine import alive

pytestmark = [
    pytest.mark.skipif(
        not Path(PYTHON).is_file(), reason="no environment with vLLM: make test-vllm"
    ),
    pytest.mark.skipif(
        os.environ.get("PRILL_LONG") != "1", reason="takes several minutes: set PRILL_LONG=1"
    ),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]
# Two models in turns, as a study asks them: policy, judge, and whatever comes next finds the card
# empty.
RUN = """
import asyncio, sys
from prill.errors import TruncatedError
from prill.models.devices import free_devices
from prill.models.vllm import VLLMModel
from prill.protocols import Message

async def ask(model):
    try:
        await model.complete([Message("user", ("Well?",))], max_tokens=4)
    except TruncatedError:  # a random model ends nothing by itself
        pass
    print(model.name, flush=True)
    sys.stdin.readline()

settings = dict(dtype="bfloat16", images=0, max_model_len=512, serve_python=sys.argv[1],
                serve_options="--enforce-eager --max-num-seqs 2")
policy, judge = (VLLMModel(folder, **settings) for folder in sys.argv[2:4])
asyncio.run(ask(policy))
asyncio.run(ask(judge))
free_devices()
print("free", flush=True)
sys.stdin.readline()
asyncio.run(ask(policy))
"""


def servers(below: int) -> dict[int, str]:
    """The processes of servers that this process started, with the model of each."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if (
            "--served-model-name" in words
            and any("keeper.py" in word for word in words)
            and parent == below
        ):
            found[int(folder.name)] = words[words.index("--served-model-name") + 1]
    return found


def descendants(process: int) -> set[int]:
    """All processes below one."""
    pairs = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.split()
    parents = dict(zip(map(int, pairs[::2]), map(int, pairs[1::2]), strict=True))
    below = {process}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {process}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_real_servers_take_turns(
    tmp_path: Path, torchvision_beside_cpu_torch: Callable[[], None]
) -> None:
    pytest.importorskip("transformers")
    torchvision_beside_cpu_torch()
    folders = []
    for name in ("policy", "judge"):
        model, reader = tiny.build("qwen2", served=True)
        tiny.save(model.bfloat16(), reader, tmp_path / name)
        folders.append(str(tmp_path / name))
    command = [sys.executable, "-c", RUN, PYTHON, *folders]
    with subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None and run.stdin is not None
        for name in ("policy", "judge"):
            assert run.stdout.readline() == f"vllm/{name}\n"
            assert list(servers(run.pid).values()) == [f"vllm/{name}"], (
                "never two at the same time, and the second starts"
            )
            run.stdin.write("\n")
            run.stdin.flush()
        assert run.stdout.readline() == "free\n"
        assert not descendants(run.pid), "nothing is left for what trains to share the card with"
        run.stdin.write("\n")
        run.stdin.flush()
        assert run.stdout.readline() == "vllm/policy\n"
        started = descendants(run.pid)
        assert len(started) > 2
        run.send_signal(signal.SIGKILL)
    wait_for_end(started)


def wait_for_end(processes: set[int]) -> None:
    """Until all have ended; a failure after a minute."""
    for _ in range(1200):
        if not any(map(alive, processes)):
            return
        time.sleep(0.05)
    raise AssertionError("a server outlived the process that started it")
