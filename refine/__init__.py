"""From verdicts to better agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.training.preflight import check_training
    from prill.refine.training.spec import TrainSpec, training_spec
    from prill.refine.training.train import train

__all__ = ["TrainSpec", "check_training", "train", "training_spec"]
_HOMES = {
    "TrainSpec": "training.spec",
    "check_training": "training.preflight",
    "train": "training.train",
    "training_spec": "training.spec",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
