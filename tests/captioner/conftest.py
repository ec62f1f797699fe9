"""What the tests of captioners need of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_declared: list[Any] = []  # the declarations last as long as this object


@pytest.fixture
def torchvision_beside_cpu_torch() -> Callable[[], None]:
    """Makes the usual torchvision wheel importable beside a torch without CUDA, by declaring two of its operators.

    easyocr imports torchvision but calls neither. Without the declarations that import fails: nms does not exist.
    """

    def declare() -> None:
        import torch

        if torch.version.cuda is None and not _declared:
            library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)

    return declare
