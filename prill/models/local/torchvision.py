"""Makes the usual torchvision wheel importable beside a CPU-only torch.

Its own operators cannot be loaded there, and its import fails over two of them
(`operator torchvision::nms does not exist`), which takes transformers with it. Nothing of prill
calls them, so that they are declared is enough.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from typing import Any

_declaring = threading.Lock()
_declared: list[Any] = []  # the declarations last as long as this object


def mend_torchvision() -> None:
    """To be called before transformers or peft is imported. Does nothing where torchvision is
    absent or works.
    """
    torch = importlib.import_module("torch")
    with _declaring:
        if (
            _declared
            or torch.version.cuda is not None
            or importlib.util.find_spec("torchvision") is None
        ):
            return
        try:
            importlib.import_module("torchvision")
        except RuntimeError:
            library: Any = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            _declared.append(library)
