"""The reckoning of benchmarks/reckoning.py: it counts the models that it names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def reckoning() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("reckoning", ROOT / "benchmarks/reckoning.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "reckoning", module)  # its records look for themselves there
        spec.loader.exec_module(module)
        yield module


def test_shapes_add_up_to_the_models_sizes(reckoning: Any) -> None:
    """What the makers say that all weights are, less what is not counted: biases, norms, and the
    matrices behind the eyes.
    """
    first, second = (
        shape.of_layers + 2 * shape.head_of_words for shape in (reckoning.QWEN25, reckoning.QWEN3)
    )
    eyes = reckoning.QWEN25_EYES.layers * reckoning.QWEN25_EYES.matrices
    assert first + eyes == pytest.approx(reckoning.QWEN25_ALL, rel=0.01)
    assert second == pytest.approx(reckoning.QWEN3_ALL - 0.58e9, rel=0.01)


def test_one_caption_costs_reading_all_weights(reckoning: Any) -> None:
    """By hand: 7.07e9 parameters of two bytes at 4.8e12 bytes a second, 400 times, is most of a
    caption alone.
    """
    assert 1 / reckoning.captions(1).roof == pytest.approx(400 * 2 * 7.07e9 / 4.8e12, rel=0.05)
