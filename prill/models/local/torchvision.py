"""Makes the standard torchvision wheel importable with a CPU-only torch.

Its compiled operators cannot be loaded there. Its import then fails on two missing operators
(`operator torchvision::nms does not exist`), and so does the import of transformers. prill never
calls these operators, so it is enough to declare them.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from typing import Any

_declaring = threading.Lock()
_declared: list[Any] = []  # keeps the declarations alive


def mend_torchvision() -> None:
    """Declares torchvision's missing operators; call it before importing transformers or peft.

    Does nothing if torchvision is missing or works.
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
