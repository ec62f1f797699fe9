"""Examples that train run and show what they promise."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.testing import MockServer
from tests.support.examples import embedded, run
from tests.support.warm import ONE_THREAD, TRAINING, warm_commands


@pytest.mark.slow
def test_grpo_trains_with_a_judge() -> None:
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "trl")):
        pytest.skip("not installed: pip install '.[train]'")
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    with MockServer() as server:
        example = "examples/grpo_with_judge.py"
        lines = run(
            sys.executable, example, "m", OPENAI_BASE_URL=server.base_url, **settings
        ).splitlines()
        assert server.stats().requests == 8
    steps = [line for line in lines if line.startswith("step")]
    assert len(steps) == 2
    assert all(
        re.fullmatch(r"step \d: reward [01]\.\d\d, unscored 0\.00", line) for line in steps
    ), lines


@pytest.mark.slow
def test_grpo_judges_what_tools_did(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "trl")):
        pytest.skip("not installed: pip install '.[train]'")
    # first: it makes torchvision importable
    folder = shutil.copytree(tiny_model("qwen2"), tmp_path / "tiny")
    from transformers import AutoTokenizer
    from trl.chat_template_utils import qwen2_5_chat_template

    reader = AutoTokenizer.from_pretrained(folder)
    reader.chat_template = qwen2_5_chat_template  # one that TRL knows, with tools
    reader.save_pretrained(folder)
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    with MockServer() as server:
        shown = run(
            sys.executable,
            "examples/grpo_with_tools.py",
            "m",
            str(folder),
            OPENAI_BASE_URL=server.base_url,
            **settings,
        )
    assert (
        len(re.findall(r"^step \d: reward [01]\.\d\d, unscored 0\.00$", shown, re.MULTILINE)) == 2
    )


@embedded
@pytest.mark.slow
def test_self_map_is_trained_and_compared(tmp_path: Path) -> None:
    """The ranker learns in earnest; the planner takes one step, which teaches it nothing, and
    answers in both arms.
    """
    if not all(
        importlib.util.find_spec(name)
        for name in ("torch", "transformers", "trl", "peft", "gguf", "lxml", "ijson")
    ):
        pytest.skip("not installed: pip install '.[embedded,papers,train]'")
    few = {
        "SEEDS": "0",
        "CONVERSATIONS": "24",
        "TEST": "4",
        "TURNS": "2",
        "STEPS": "1",
        "BATCH": "1",
        "ANSWER": "8",  # the untrained planner never ends one by itself
        # Small batches at a high rate: what 400 batches of 32 learn, at a third of the cost.
        "RANKER_STEPS": "150",
        "RANKER_BATCH": "16",
        "RANKER_RATE": "2e-3",
    }
    with warm_commands(*TRAINING, **ONE_THREAD) as folder:
        commands = {"PRILL": str(folder / "prill"), "PYTHON": str(folder / "python")}
        shown = run("examples/self_map/run.sh", tmp_path, **commands, **few)
    rows = [line.split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    ranked = {row[0]: float(row[-1].split()[0]) for row in rows[1:4]}
    # the right one among the first five
    assert ranked["| trained ranker"] > 1.3 * ranked["| chance"]
    kinds = {row[0]: int(row[1]) for row in rows[5:]}
    # Steps of turns that refer back are those of both kinds.
    assert (
        kinds["| all that refer back"]
        == kinds["| the same again"] + kinds.get("| the other one", 0)
        > 0
    )
    assert "0 turns broke off" in shown and (tmp_path / "results.svg").read_text().startswith(
        "<svg"
    )
