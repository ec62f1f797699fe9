"""Sizes of pictures, against the processor of Qwen2-VL itself."""

from __future__ import annotations

import pytest

from prill.models.local.torchvision import mend_torchvision
from prill.policies.screen.frames import smart_resize


def test_resize_equals_the_real_processor() -> None:
    mend_torchvision()
    module = pytest.importorskip(
        "transformers.models.qwen2_vl.image_processing_qwen2_vl",
        reason="transformers is not installed",
    )
    for width in range(60, 4000, 371):
        for height in range(60, 4000, 293):
            theirs = module.smart_resize(
                height, width, factor=28, min_pixels=3_136, max_pixels=12_845_056
            )
            assert smart_resize((width, height), 28, 3_136, 12_845_056) == theirs[::-1]
