"""Captions by a model in this process: those that were made together are those that were made one
by one.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner import VLMCaptioner, make_captioner
from prill.captioner.bulk import caption_files
from prill.captioner.files import read_captions
from prill.captioner.vision import unmarked
from prill.types import Observation

pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "transformers")),
        reason="not installed: pip install '.[local]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]


async def test_batched_captions_equal_single(
    tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    names = [f"{i}.png" for i in range(5)]
    for i, name in enumerate(names):
        Picture.linear_gradient("L").rotate(90 * i).resize((80 + 40 * i, 60)).convert("RGB").save(
            tmp_path / name
        )
    rows = [{"id": name, "task": {"goal": "g"}, "final": {"screenshot": name}} for name in names]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def captioner() -> VLMCaptioner:
        made = make_captioner(
            "vlm", model=f"local:{tiny_model('qwen2_5_vl')}", max_tokens=4, dtype="float32"
        )
        assert isinstance(made, VLMCaptioner)
        return made

    tally = await caption_files([tmp_path / "t.jsonl"], captioner(), tmp_path / "c.jsonl")
    together = {
        caption.image: (caption.caption, caption.truncated)
        for caption in read_captions(tmp_path / "c.jsonl")
    }
    assert tally.made == tally.truncated == 5, "a random model never ends by itself"
    alone = captioner()
    singly = {
        name: unmarked(await alone(Observation(screenshot=str(tmp_path / name)))) for name in names
    }
    assert together == singly
    assert len(set(together.values())) > 1, "it looks at the pictures"
