"""An endpoint and a machine, for the tests of this folder."""

from __future__ import annotations

from tests.support.models.scripted_endpoint import endpoint, frames, machine, quick_retries

__all__ = ["endpoint", "frames", "machine", "quick_retries"]
