"""What tests of several folders need of the machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

_declared: list[Any] = []  # the declarations last as long as this object


@pytest.fixture(scope="session")
def torchvision_beside_cpu_torch() -> Callable[[], None]:
    """Makes the usual torchvision wheel importable beside a torch without CUDA, by declaring two of its operators.

    easyocr and transformers import torchvision but call neither. Without the declarations that import fails: nms does not
    exist.
    """

    def declare() -> None:
        import torch

        if importlib.util.find_spec("torchvision") is None or torch.version.cuda is not None or _declared:
            return
        try:
            import torchvision  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
        except RuntimeError:
            library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)

    return declare
