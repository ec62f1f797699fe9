"""Android virtual devices: cloned, started, snapshotted, stopped and deleted.

Each copy has a folder of its own. The original AVD is only read, and may be in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Container
from pathlib import Path

from prill.emulators.android.adb import AdbServer, sdk_program
from prill.emulators.android.phone import PhoneLostError
from prill.errors import EnvironmentFailedError, UsageError
from prill.temporary import TempFolder, abandoned, taken_over

# The prefix of a copy's folder, which holds the emulator's output and its process id.
PREFIX = "prill-avd-"
LOG, PID = "emulator.log", "emulator.pid"
# Files of a running emulator, and large files that are not used.
_LEFT_OUT = re.compile(
    r".*\.lock|snapshots|tmpAdbCmds|bootcompleted\.ini|emu-launch-params\.txt|read-snapshot\.txt"
)
# The emulator's console listens on an even port and its adb on the next;
# https://developer.android.com/tools/adb.
PORTS = range(5554, 5683, 2)
FLAGS = (
    "-no-snapshot",  # a cold boot, and nothing saved at the end; snapshots by command still work
    "-no-boot-anim",  # boots faster
    "-no-audio",  # machines without a sound card
)
_PATH = re.compile(r"(?m)^(path\s*=\s*)(.*)$")
# Relative to the folder above the AVDs, and read before the other one where it leads somewhere.
_RELATIVE = re.compile(r"(?m)^path\.rel\s*=.*\n?")


def avd_home() -> Path:
    """Returns the AVD folder: $ANDROID_AVD_HOME, $ANDROID_USER_HOME/avd, or ~/.android/avd."""
    if folder := os.environ.get("ANDROID_AVD_HOME"):
        return Path(folder)
    return Path(os.environ.get("ANDROID_USER_HOME") or Path.home() / ".android") / "avd"


def avds(home: Path) -> list[str]:
    """Lists the names of the AVDs in a folder."""
    return sorted(path.stem for path in home.glob("*.ini"))


def find_avd(name: str, home: Path) -> Path:
    """Finds the folder with the AVD's disks and settings. Raises UsageError."""
    ini = home / f"{name}.ini"
    if not ini.is_file():
        raise UsageError(
            f"unknown AVD {name!r} in {home}; expected one of {', '.join(avds(home)) or 'none'}"
        )
    path = _PATH.search(ini.read_text(encoding="utf-8"))
    # If the whole AVD folder was moved, its files still hold the old path.
    for folder in (Path(path[2].strip()) if path else None, ini.with_suffix(".avd")):
        if folder is not None and (folder / "config.ini").is_file():
            return folder
    raise UsageError(
        f"{ini} does not point to an AVD: "
        f"{path[2].strip() if path else ini.with_suffix('.avd')} contains no config.ini"
    )


async def copy_avd(name: str, home: Path, target_home: Path) -> None:
    """Copies the AVD into a new AVD folder, without snapshots, which hold the old paths."""
    source, target = find_avd(name, home), target_home / f"{name}.avd"
    # One file at a time, so that a cancelled episode stops between files.
    for folder, folders, files in os.walk(source):
        folders[:] = [one for one in folders if not _LEFT_OUT.fullmatch(one)]
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        for one in files:
            if not _LEFT_OUT.fullmatch(one):
                await asyncio.to_thread(shutil.copy2, Path(folder) / one, here / one)
    for settings in target.glob("*.ini"):
        text = settings.read_text(encoding="utf-8", errors="surrogateescape")
        moved = text.replace(str(source), str(target)).replace(str(home), str(target_home))
        settings.write_text(moved, encoding="utf-8", errors="surrogateescape")
    text = _RELATIVE.sub("", (home / f"{name}.ini").read_text(encoding="utf-8"))
    (target_home / f"{name}.ini").write_text(
        _PATH.sub(lambda line: f"{line[1]}{target}", text), encoding="utf-8"
    )


def clear_up() -> None:
    """Deletes the copies of killed runs, and ends the emulators still on them (on Linux)."""
    for folder in abandoned(PREFIX):
        with taken_over(folder) as dead:
            if dead:
                with contextlib.suppress(OSError, ValueError):
                    pid = int((folder / PID).read_text(encoding="utf-8"))
                    # The process id may belong to another program now.
                    if (
                        f"ANDROID_AVD_HOME={folder.resolve()}\0".encode()
                        in Path(f"/proc/{pid}/environ").read_bytes()
                    ):
                        os.killpg(pid, signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)


class Avd:
    """Creates fresh copies of an Android virtual device.

    The copy takes some gigabytes in the system's temporary folder ($TMPDIR). The next run cleans up
    after a killed one.

    Args:
        name: The AVD's name.
        home: The folder of the AVDs. None: the emulator's default.
        emulator: The emulator program. None: found by the Android SDK's variables or the PATH.
        adb_port: The port of the adb server. None: adb's own default.
        window: Show the screen on the desktop.
        snapshot: The name of a snapshot that the copy saves after its first boot, and loads for
            each episode, which takes seconds. None: every episode has a new copy and a cold boot.
        boot_timeout: The time limit of a boot, in seconds.
        stop_timeout: The time that the emulator gets to stop before it is killed, in seconds.
        poll: The interval of the checks during a boot, in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        home: Path | None = None,
        emulator: Path | None = None,
        adb_port: int | None = None,
        window: bool = False,
        snapshot: str | None = None,
        boot_timeout: float = 300.0,
        stop_timeout: float = 20.0,
        poll: float = 0.5,
    ) -> None:
        self.name = name
        self._home = home or avd_home()
        self._emulator = emulator
        self._adb = AdbServer(adb_port)
        self._window = window
        self._snapshot = snapshot
        self._boot_timeout = boot_timeout
        self._stop_timeout = stop_timeout
        self._poll = poll
        self._copy: TempFolder | None = None
        self._port: int | None = None
        self._mark: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def serial(self) -> str:
        """The adb serial number of the running device."""
        if self._port is None:
            raise UsageError(f"no copy of {self.name} is running")
        return f"emulator-{self._port}"

    async def fresh(self) -> str:
        """Restores a device to its first state and returns its serial number.

        Raises:
            EnvironmentFailedError: The emulator does not start or boot.
            UsageError: There is no such AVD or no emulator.
        """
        if (
            self._snapshot is not None
            and self._process is not None
            and self._process.poll() is None
        ):
            # A device that cannot load its snapshot is replaced.
            with contextlib.suppress(EnvironmentFailedError):
                await self._console("avd", "snapshot", "load", self._snapshot)
                await self.wait_for_boot()
                return self.serial
        await self.close()
        try:
            program = self._program()
            await self._adb.attach()
            home = await self._clone()
            self._choose_port(await self._adb.devices())
            self._start(program, home)
            await self.wait_for_boot()
            if self._snapshot is not None:
                await self._console("avd", "snapshot", "save", self._snapshot)
        except (EnvironmentFailedError, UsageError):
            await self.close()
            raise
        return self.serial

    async def wait_for_boot(self) -> None:
        """Waits until the device has booted, by its boot flag, boot animation and package manager.

        Raises:
            EnvironmentFailedError: The device does not boot in time, or the emulator has ended.
        """
        end = time.monotonic() + self._boot_timeout
        state = "it was not seen by adb"
        while True:
            self.check()
            try:
                booted = (
                    "getprop sys.boot_completed; getprop init.svc.bootanim; pm list packages "
                    "android"
                )
                printed = await self._adb.shell(
                    self.serial, booted, timeout=min(5.0, self._boot_timeout)
                )
                flag, animation, package = [*printed.text.split("\n"), "", ""][:3]
                if (
                    flag.strip() == "1"
                    and animation.strip() in ("", "stopped")
                    and package.startswith("package:")
                ):
                    return
                booted, moving = flag.strip() or "not set", animation.strip() or "unknown"
                state = f"sys.boot_completed is {booted}, the boot animation {moving}"
            except PhoneLostError as lost:
                state = str(lost)
            if time.monotonic() > end:
                raise EnvironmentFailedError(
                    f"{self.name} did not boot within {self._boot_timeout:g} s: {state}"
                )
            await asyncio.sleep(self._poll)

    def check(self) -> None:
        """Checks that the emulator runs.

        Raises:
            EnvironmentFailedError: The emulator has ended; the message has its last output.
        """
        if self._process is not None and (status := self._process.poll()) is not None:
            raise EnvironmentFailedError(
                f"the emulator of {self.name} exited with status {status}: {self._last_output()}"
            )

    async def close(self) -> None:
        """Ends the emulator and deletes the copy; safe to call twice."""
        process, self._process = self._process, None
        try:
            if process is not None:
                await self._end(process)
        finally:
            if process is not None:
                _kill_group(process)
            self._port = None
            if self._mark is not None:
                self._mark.close()
                self._mark = None
            copy, self._copy = self._copy, None
            if copy is not None:
                await asyncio.to_thread(copy.close)
            await self._adb.detach()

    async def _clone(self) -> Path:
        find_avd(self.name, self._home)
        await asyncio.to_thread(clear_up)
        self._copy = TempFolder(PREFIX)
        home = self._copy.path.resolve()
        await copy_avd(self.name, self._home, home)
        return home

    def _choose_port(self, devices: Container[str]) -> None:
        for port in PORTS:
            # adb may list another emulator under that port, which would receive our commands.
            if f"emulator-{port}" not in devices and (mark := _marked(port)) is not None:
                self._port, self._mark = port, mark
                return
        raise EnvironmentFailedError(
            f"no port between {PORTS[0]} and {PORTS[-1] + 1} is free for another emulator"
        )

    def _program(self) -> str:
        program = str(self._emulator) if self._emulator else sdk_program("emulator", "emulator")
        if program is None:
            raise UsageError(
                "the Android emulator is not installed; install it with sdkmanager emulator, or "
                "set ANDROID_HOME"
            )
        return program

    def _start(self, program: str, home: Path) -> None:
        assert self._port is not None
        command = [program, "-avd", self.name, "-port", str(self._port), *FLAGS]
        if not self._window:
            command.append("-no-window")
        environment = {
            **os.environ,
            "ANDROID_AVD_HOME": str(home),
            "ANDROID_ADB_SERVER_PORT": str(self._adb.port),
        }
        with (home / LOG).open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentFailedError(
                    f"{program} does not start: {error.strerror}"
                ) from error
        (home / PID).write_text(str(self._process.pid), encoding="utf-8")

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Stops the emulator: by its console, so that the disk is closed, then by signals."""
        if process.poll() is None:
            with contextlib.suppress(PhoneLostError, UsageError):
                printed = await self._adb.program(
                    "-s", self.serial, "emu", "kill", timeout=self._stop_timeout
                )
                if printed.status == 0:
                    await self._ended(process)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await self._ended(process)

    async def _ended(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + self._stop_timeout
        while process.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def _console(self, *command: str) -> None:
        printed = await self._adb.program(
            "-s", self.serial, "emu", *command, timeout=self._boot_timeout
        )
        if printed.status != 0 or re.search("^KO", printed.text, re.MULTILINE):
            raise EnvironmentFailedError(
                f"{self.serial}: `{' '.join(command)}` failed: {printed.last_line}"
            )

    def _last_output(self) -> str:
        assert self._copy is not None
        lines = (self._copy.path / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        return (
            " | ".join(line.strip()[:300] for line in lines[-5:] if line.strip())
            or "it said nothing"
        )


def _marked(console: int) -> socket.socket | None:
    """Reserves a free console port as long as the returned socket is open; None if it is taken.

    The emulator binds its ports only some time after its start; other processes may choose the same
    port before that. The reservation is the UDP port of the same number, which the emulator does
    not use.
    """
    mark = socket.socket(type=socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", console))
        if _are_free(console):
            return mark
    except OSError:
        pass
    mark.close()
    return None


def _are_free(console: int) -> bool:
    for port in (console, console + 1):
        with socket.socket() as probe:
            # As in the emulator, a port whose last connection has just ended counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
