"""The state of fake simulators, and the folder of files (a device set) that stores it between
processes.
"""

from __future__ import annotations

import fcntl
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec


class NoSimulatorError(LookupError):
    """Raised if the simulator is not in the device set."""


class Simulator(msgspec.Struct, kw_only=True):
    """One simulator. Positions are in points; `app` is a bundle id, None on the home screen;
    `lines` were sent or found.
    """

    udid: str
    name: str = "iPhone 14"
    os_version: str = "iOS 17.4"
    width: int = 390
    height: int = 844
    density: int = 3
    booted: bool = False
    ready_at: float = 0.0
    app: str | None = None
    page: int = 0
    scroll: int = 0
    focused: bool = False
    on: list[str] = msgspec.field(default_factory=lambda: ["Wi-Fi"])
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    lines: dict[str, list[str]] = msgspec.field(default_factory=dict)
    pasteboard: str = ""
    location: tuple[float, float] | None = None
    accessibility: bool = True

    @property
    def state(self) -> str:
        """The state in idb's terms: Shutdown, Booting or Booted."""
        if not self.booted:
            return "Shutdown"
        return "Booted" if time.time() >= self.ready_at else "Booting"

    def boot(self, seconds: float = 0.0) -> None:
        """Starts the simulator, which answers after that many seconds. The screen is reset;
        settings are kept.
        """
        self.booted, self.ready_at = True, time.time() + seconds
        self.app, self.page, self.scroll, self.focused = None, 0, 0, False

    def as_new(self) -> Simulator:
        """Returns the same device in its factory state, shut down."""
        same = {
            name: getattr(self, name)
            for name in ("udid", "name", "os_version", "width", "height", "density")
        }
        return Simulator(**same)

    def description(self) -> str:
        """Returns the line that the companion prints for the simulator."""
        facts = {
            "udid": self.udid,
            "name": self.name,
            "model": self.name,
            "state": self.state,
            "type": "simulator",
        }
        return json.dumps({**facts, "os_version": self.os_version, "architecture": "arm64"})


class DeviceSet:
    """The simulators in a folder, one file each. Processes may change them concurrently."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Simulator]:
        """Returns every simulator, by name."""
        simulators = []
        for path in self.folder.glob("*.sim"):
            try:
                simulators.append(msgspec.json.decode(path.read_bytes(), type=Simulator))
            except FileNotFoundError:
                continue
        return sorted(simulators, key=lambda simulator: (simulator.name, simulator.udid))

    def read(self, udid: str) -> Simulator:
        """Returns one simulator. Raises NoSimulatorError."""
        try:
            return msgspec.json.decode(self._path(udid).read_bytes(), type=Simulator)
        except FileNotFoundError:
            raise NoSimulatorError(f"no simulator {udid} in {self.folder}") from None

    def put(self, simulator: Simulator) -> None:
        """Writes a simulator atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._path(simulator.udid).with_suffix(f".{uuid.uuid4().hex}")
        part.write_bytes(msgspec.json.encode(simulator))
        part.replace(self._path(simulator.udid))

    @contextmanager
    def change(self, udid: str) -> Iterator[Simulator]:
        """Yields the simulator for an exclusive change."""
        with locked(self.folder):
            simulator = self.read(udid)
            yield simulator
            self.put(simulator)

    def clone(self, udid: str, into: DeviceSet) -> Simulator:
        """Returns a copy under another UDID, as stored on disk."""
        twin = msgspec.structs.replace(self.read(udid), udid=new_udid())
        into.put(twin)
        return twin

    def delete(self, udid: str) -> None:
        """Deletes a simulator. Raises NoSimulatorError."""
        self.read(udid)
        self._path(udid).unlink()

    def _path(self, udid: str) -> Path:
        return self.folder / f"{udid}.sim"


def new_udid() -> str:
    """Returns a UDID in CoreSimulator's format."""
    return str(uuid.uuid4()).upper()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder for one process at a time."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
