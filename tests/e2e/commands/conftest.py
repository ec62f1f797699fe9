"""The command, for the tests of this folder."""

from __future__ import annotations

from tests.support.commands.command import chromium, prill

__all__ = ["chromium", "prill"]
