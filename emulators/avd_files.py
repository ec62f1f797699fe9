"""The files of an AVD: where they are, and a copy of them that an emulator takes for its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from prill.emulators.own_folder import abandoned, taken_over
from prill.errors import UsageError

# A copy's folder begins so; in it are what the emulator said, and its process id.
PREFIX = "prill-avd-"
LOG, PID = "emulator.log", "emulator.pid"
# What belongs to a running emulator, and what takes room and is not used.
_LEFT_OUT = re.compile(r".*\.lock|snapshots|tmpAdbCmds|bootcompleted\.ini|emu-launch-params\.txt|read-snapshot\.txt")
_PATH = re.compile(r"(?m)^(path\s*=\s*)(.*)$")
# Relative to the folder above the AVDs, and read before the other one where it leads somewhere.
_RELATIVE = re.compile(r"(?m)^path\.rel\s*=.*\n?")


def avd_home() -> Path:
    """Where the emulator looks for AVDs: $ANDROID_AVD_HOME, $ANDROID_USER_HOME/avd, else ~/.android/avd."""
    if given := os.environ.get("ANDROID_AVD_HOME"):
        return Path(given)
    return Path(os.environ.get("ANDROID_USER_HOME") or Path.home() / ".android") / "avd"


def avds(home: Path) -> list[str]:
    """The names of the AVDs in a folder."""
    return sorted(path.stem for path in home.glob("*.ini"))


def find_avd(name: str, home: Path) -> Path:
    """The folder with the AVD's disks and settings. Raises UsageError."""
    ini = home / f"{name}.ini"
    if not ini.is_file():
        raise UsageError(f"there is no AVD {name!r} in {home}; there are: {', '.join(avds(home)) or 'none'}")
    found = _PATH.search(ini.read_text(encoding="utf-8"))
    # A folder of AVDs that was moved as a whole has its old path in its files.
    for folder in (Path(found[2].strip()) if found else None, ini.with_suffix(".avd")):
        if folder is not None and (folder / "config.ini").is_file():
            return folder
    raise UsageError(
        f"{ini} leads to no AVD: there is no config.ini in {found[2].strip() if found else ini.with_suffix('.avd')}"
    )


async def copy_avd(name: str, home: Path, target_home: Path) -> None:
    """Makes `target_home` a home with that one AVD. Saved snapshots stay behind: they hold the old paths."""
    source, target = find_avd(name, home), target_home / f"{name}.avd"
    # One file at a time, so that a cancelled episode stops between two.
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
    (target_home / f"{name}.ini").write_text(_PATH.sub(lambda found: f"{found[1]}{target}", text), encoding="utf-8")


def clear_up() -> None:
    """Deletes the copies of runs that were killed, and ends the emulators that still run on them (on Linux)."""
    for folder in abandoned(PREFIX):
        with taken_over(folder) as dead:
            if dead:
                with contextlib.suppress(OSError, ValueError):
                    pid = int((folder / PID).read_text(encoding="utf-8"))
                    # The number may have gone to another program since.
                    if f"ANDROID_AVD_HOME={folder.resolve()}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                        os.killpg(pid, signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)
