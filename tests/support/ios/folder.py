"""A folder of fake simulators with the executables that drive them, for tests and manual use."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support import search_path
from tests.support.ios.faults import set_faults
from tests.support.ios.simulators import DeviceSet, Simulator, new_udid


class FakeSimulators:
    """Fake iOS simulators, stored in a folder. `companion` and `simctl` are executables; `udids`
    are in the order of `names`.

    With the folder on the PATH, `xcrun` and `xcodebuild` exist too. Every request to any simulator,
    including copies in other device sets, is a line of `events`.

    Args:
        folder: The folder, made where it does not exist.
        names: The simulators' names.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ("iPhone 14",)) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._devices = DeviceSet(self.folder)
        simulators = self._devices.all()
        for name in names:
            if not any(simulator.name == name for simulator in simulators):
                self._devices.put(Simulator(udid=new_udid(), name=name))
        udids = {simulator.name: simulator.udid for simulator in self._devices.all()}
        self.udids = tuple(udids[name] for name in names)
        self.companion = self._executable("idb_companion")
        self.simctl = self._executable("simctl")
        found = shlex.quote(str(self.simctl))
        self._script(
            "xcrun", f'[ "$1" = --find ] && echo {found} && exit\nshift\nexec {found} "$@"'
        )
        self._script("xcodebuild", "echo Xcode 26.0.1\necho Build version 17A400")

    def read(self, udid: str) -> Simulator:
        """Reads a simulator.

        Args:
            udid: Its UDID.

        Returns:
            The current state.

        Raises:
            LookupError: There is no such simulator.
        """
        return self._devices.read(udid)

    def all(self) -> list[Simulator]:
        """Returns the simulators of this folder, without copies in other device sets."""
        return self._devices.all()

    def change(self, udid: str) -> AbstractContextManager[Simulator]:
        """Changes a simulator. Changes made in the block are saved.

        Args:
            udid: Its UDID.

        Returns:
            A context manager with the simulator.
        """
        return self._devices.change(udid)

    def add(self, simulator: Simulator) -> None:
        """Adds a simulator.

        Args:
            simulator: The simulator; its screen may have a size of its own.
        """
        self._devices.put(simulator)

    def faults(self, **faults: str | Sequence[str]) -> None:
        """Replaces the faults.

        Args:
            **faults: The faults by name (see tests.support.ios.faults).
        """
        set_faults(self.folder, faults)

    def events(self) -> list[str]:
        """Returns the requests, such as `tap 195 422`, without the UDIDs."""
        return [line.partition(" ")[2] for line in self.log()]

    def log(self) -> list[str]:
        """Returns the requests, each line with the UDID first."""
        path = self.folder / "events.log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def _executable(self, name: str) -> Path:
        program = " ".join(
            shlex.quote(part) for part in (sys.executable, "-m", "tests.support.ios")
        )
        path = shlex.quote(search_path())
        return self._script(
            name, f'PYTHONPATH={path} exec {program} --{name} {shlex.quote(str(self.folder))} "$@"'
        )

    def _script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path
