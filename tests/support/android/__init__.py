"""Fake Android phones for the real tools. They implement the protocols of the adb server,
UiAutomator2 and the emulator.
"""

from __future__ import annotations

from tests.support.android.host import FakeAdb
from tests.support.android.phone import FAULTS, Fault, Phone
from tests.support.android.tools import write_avd, write_tools

__all__ = ["FAULTS", "FakeAdb", "Fault", "Phone", "write_avd", "write_tools"]
