"""A service in this process, for the tests of this folder."""

from __future__ import annotations

from tests.support.service.visiting import record, visiting

__all__ = ["record", "visiting"]
