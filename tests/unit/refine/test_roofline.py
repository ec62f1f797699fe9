"""The estimates of benchmarks/roofline.py agree with the models' published sizes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def roofline() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("roofline", ROOT / "benchmarks/roofline.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "roofline", module)  # dataclasses look up their module there
        spec.loader.exec_module(module)
        yield module


def test_shapes_add_up_to_the_models_sizes(roofline: Any) -> None:
    """The published number of parameters, without those that are not counted: biases, norms, and
    the projection after the vision encoder.
    """
    first, second = (
        shape.layer_params + 2 * shape.lm_head_params for shape in (roofline.QWEN25, roofline.QWEN3)
    )
    vision = roofline.QWEN25_VISION.layers * roofline.QWEN25_VISION.matrices
    assert first + vision == pytest.approx(roofline.QWEN25_PARAMS, rel=0.01)
    assert second == pytest.approx(roofline.QWEN3_PARAMS - 0.58e9, rel=0.01)


def test_one_caption_costs_reading_all_weights(roofline: Any) -> None:
    """By hand: 7.07e9 parameters of two bytes at 4.8e12 bytes a second, 400 times, is most of a
    caption alone.
    """
    assert 1 / roofline.captions(1).roof == pytest.approx(400 * 2 * 7.07e9 / 4.8e12, rel=0.05)
