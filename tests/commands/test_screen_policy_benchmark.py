"""`benchmarks/screen_policy.py` at a size that teaches nothing: the chain runs, and the same
command does nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from prill.config.registry import load_file

benchmark: Any = load_file(Path(__file__).parents[2] / "benchmarks/screen_policy.py")
TINY = [
    "--steps",
    "2",
    "--own-steps",
    "2",
    "--teacher",
    "3",
    "--attempts",
    "2",
    "--evaluation",
    "2",
    "--workers",
    "1",
]


def test_fixed_text_is_one_token_and_digits_are_their_own() -> None:
    call = 'I click.\n<tool_call>\n{"coordinate": [12, 345]}\n</tool_call>'
    row = {
        "prompt": [
            {"role": "system", "content": "Screen 1000x1000."},
            {"role": "user", "content": "The query: Click ONE.\nDone: 0"},
        ],
        "completion": [
            {"role": "assistant", "content": [{"type": "text", "text": call}, {"type": "image"}]}
        ],
    }
    pieces = benchmark.pieces([row])
    assert "Screen 1000x1000." in pieces
    assert "The query: Click ONE." in pieces
    if find_spec("transformers") is None:
        pytest.skip("not installed: transformers")
    words = benchmark.tokenizer(pieces)
    assert len(words(call)["input_ids"]) == 3 + 5
    assert words.decode(words(call)["input_ids"]) == call
    assert words.decode(words("Clïck x")["input_ids"]) == "Clïck x"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own, about their deprecations
@pytest.mark.usefixtures("chromium")
def test_chain_runs_and_resumes(
    torchvision_beside_cpu_torch: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if missing := [
        name for name in ("torch", "transformers", "trl", "peft") if find_spec(name) is None
    ]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    torchvision_beside_cpu_torch()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert benchmark.main([str(tmp_path / "out"), *TINY]) == 0
    record = json.loads((tmp_path / "out/base/training.json").read_text())
    assert record["done"]
    assert record["counts"]["learnt"] == 3
    # The preset's limit of pixels is larger than the model's own, which stays.
    assert json.loads((tmp_path / "out/base/processor_config.json").read_text())["image_processor"][
        "size"
    ]["longest_edge"] == (benchmark.PIXELS)
    rows = [
        json.loads(line)
        for line in (tmp_path / "out/teacher-rows/sft.jsonl").read_text().splitlines()
    ]
    assert all(
        '"action": "left_click"' in row["completion"][0]["content"][0]["text"] for row in rows
    )
    written = recorded(tmp_path)
    assert benchmark.main([str(tmp_path / "out"), *TINY]) == 0
    assert recorded(tmp_path) == written


def recorded(folder: Path) -> dict[Path, int]:
    """When each record was written; the tables, with their checksums, are made again."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*.jsonl")
        if path.name != "checksums.jsonl"
    }
