"""The committed sample, for the tests of this folder."""

from __future__ import annotations

from tests.unit.datasets.test_samples import labels, trajectories

__all__ = ["labels", "trajectories"]
