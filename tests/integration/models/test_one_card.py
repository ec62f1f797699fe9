"""Models that take turns on one card: vLLM's servers, by the machine of test_vllm, and weights in
this process.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prill.errors import UsageError
from prill.evaluators.registry import make_judge
from prill.models.devices import free_devices
from prill.models.vllm import VLLMModel
from tests.support.models.machine import ASK, FORM, Machine

SHARE = "--gpu-memory-utilization {}"


async def ask(*models: VLLMModel) -> None:
    for model in models:
        await model.complete(ASK, form=FORM)


def at_once(machine: Machine) -> int:
    """How many servers ran at the same time at most, by what each noted when it started."""
    return max(int(count) for count in machine.noted("running"))


async def test_second_server_starts_alone(machine: Machine) -> None:
    policy, judge = VLLMModel(str(machine.model)), VLLMModel(str(machine.other()))
    await ask(policy, judge, policy)
    assert [words.split()[1] for words in machine.words] == [
        str(machine.model),
        str(machine.other()),
        str(machine.model),
    ]
    assert at_once(machine) == 1
    free_devices()
    assert machine.all_ended()
    await ask(judge)
    assert len(machine.words) == 4, "what was freed starts again when it is asked"
    judge.close()


async def test_server_in_use_is_not_ended(machine: Machine) -> None:
    """A call that needs the card while another one is answered there ends with what to do, and the
    other one goes on.
    """
    slow = VLLMModel(str(machine.model), serve_options="--fault latency=2")
    await ask(slow)
    waiting = asyncio.create_task(ask(slow))
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="serve 2 models at the same time.*gpu-memory-utilization"):
        await ask(VLLMModel(str(machine.other())))
    await waiting
    slow.close()
    assert len(machine.words) == 1


def modular(captioner: Path, reasoner: Path, shares: tuple[object, object]) -> dict[str, Any]:
    options = [{} if share is None else {"serve_options": SHARE.format(share)} for share in shares]
    seeing = {"name": "vlm", "model": {"name": f"vllm:{captioner}", **options[0]}}
    return {"name": "modular", "model": f"vllm:{reasoner}", "captioner": seeing, **options[1]}


@pytest.mark.parametrize("shares", [(None, None), (0.45, None), (0.5, 0.5), (0.9, 0.2)])
def test_judge_of_two_servers_is_refused(machine: Machine, shares: tuple[object, object]) -> None:
    with pytest.raises(UsageError, match="vLLM would have to serve 2 models at the same time"):
        make_judge(modular(machine.model, machine.other(), shares))


def test_weights_are_freed_and_loaded_again(tmp_path: Path) -> None:
    from prill.models.local.model import LocalModel

    (tmp_path / "config.json").write_text("{}")
    model = LocalModel(tmp_path)
    model._desk._weights = SimpleNamespace()  # type: ignore[assignment]
    free_devices()
    assert model._desk._weights is None


STUDY = """
[policy]
name = "{here}/policy.py:Clicker"
model = "vllm:{model}"
serve_options = "{options}"

[training]
model = "embedded"

[episodes]
environment = "{here}/place.py:Place"
goal = "truth=success"
max_steps = 1

[attempts]
temperature = 1.0

[evaluation]

[[arms]]
name = "filtered"
judge = {{ name = "modular", captioner = "text", model = "vllm:{other}" }}
"""
PLACE = """
from prill.types import LabelRecord, Observation

class Place:
    platform = "web"

    def __init__(self, images=None):
        pass

    async def reset(self, task):
        return Observation(text="a page", caption="a page")

    async def step(self, action):
        return Observation(text="done", caption="done"), True

    async def grade(self, trajectory):
        return LabelRecord(id=trajectory.id, success=True, source="oracle")

    async def close(self):
        pass
"""
POLICY = """
from prill.protocols import LanguageModel, Message
from prill.types import Action, Step

class Clicker:
    def __init__(self, model: LanguageModel):
        self.model = model

    def reset(self, task):
        self.task = task

    async def act(self, observation):
        await self.model.complete([Message("user", (self.task.goal,))])
        return Step(observation, Action("click", "click", target="1"))

    def demonstrate(self, trajectory, index):
        return [Message("user", ("Which?",))], "click"
"""
# What `prill filtered-bc` does, with a training that notes which servers run, and makes an adapter
# that is none.
RUN = """
import sys
import time
from pathlib import Path
from prill.refine.filtered_bc.study import FilteredBCConfig, prepare, run_study

def learn(spec, rows, output, **told):
    print("training", flush=True)
    if sys.argv[3:] == ["stay"]:
        sys.stdin.read()
    output.mkdir()
    (output / "adapter_config.json").write_text('{"r": 8}')
    return output

config = FilteredBCConfig.load(Path(sys.argv[1]), output=Path(sys.argv[2]))
world, judges, _ = prepare(config)
run_study(config, world, learn=learn)
print("done", flush=True)
"""


def started(machine: Machine, folder: Path, *more: str, options: str = "") -> subprocess.Popen[str]:
    (folder / "place.py").write_text(PLACE)
    (folder / "policy.py").write_text(POLICY)
    text = STUDY.format(here=folder, model=machine.model, other=machine.other(), options=options)
    (folder / "study.toml").write_text(text)
    command = [sys.executable, "-c", RUN, str(folder / "study.toml"), str(folder / "out"), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_study_has_one_server_at_a_time(machine: Machine, tmp_path: Path) -> None:
    """Playing, judging, training, playing with the adapter: each model of a study is served alone,
    and none while it trains.
    """
    with started(machine, tmp_path, "stay") as run:
        assert run.stdout is not None and run.stdin is not None
        assert run.stdout.readline() == "training\n"
        assert machine.all_ended(), (
            "no server is left while a model is trained, though the teacher and the judge are there"
        )
        served = [words.split()[1] for words in machine.words]
        run.stdin.close()
        assert run.stdout.readline() == "done\n"
    policy, judge = str(machine.model), str(machine.other())
    assert served[-1] == judge and set(served[:-1]) == {policy}
    assert [words.split()[1] for words in machine.words] == [*served, policy]
    assert "--lora-modules" in machine.words[-1]
    assert at_once(machine) == 1 and machine.all_ended()
    rows = (tmp_path / "out/seed-0/filtered/round-1/rows.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["completion"][0]["content"] == "click"


def test_killed_study_leaves_no_server(machine: Machine, tmp_path: Path) -> None:
    # the first call is never answered
    with started(machine, tmp_path, options="--fault latency=600") as run:
        while not machine.words:
            assert run.poll() is None
            time.sleep(0.02)
        run.kill()
    assert machine.all_ended()
