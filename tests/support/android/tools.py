"""Makes folders in the layout of the Android SDK, for programs that look for an emulator and
AVDs.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from prill.errors import UsageError
from tests.support import search_path

# the variable that names the fake emulator's server
CONTROL = "PRILL_FAKE_ADB"


def write_tools(folder: Path, control_url: str, *, adb: str | None = None) -> Path:
    """Turns a folder into an ANDROID_HOME with the fake emulator, and with platform-tools/adb as a
    link to the real adb.

    Args:
        folder: The folder.
        control_url: The fake adb server that gets the phones (`FakeAdb.control_url`).
        adb: The real adb. None: the one on the PATH.

    Returns:
        The folder.

    Raises:
        UsageError: adb is not installed.
    """
    real = adb or shutil.which("adb")
    if real is None:
        raise UsageError("adb is not installed: apt-get install adb")
    platform = folder / "platform-tools"
    platform.mkdir(parents=True, exist_ok=True)
    link = platform / "adb"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(real).resolve())
    script = folder / "emulator" / "emulator"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "#!/bin/sh\n"
        f"{CONTROL}={shlex.quote(control_url)} PYTHONPATH={shlex.quote(search_path())} \\\n"
        f'exec {shlex.quote(sys.executable)} -m tests.support.android.emulator "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return folder


def write_avd(home: Path, name: str, *, size: tuple[int, int] = (720, 1600)) -> Path:
    """Makes an AVD that was never started.

    Args:
        home: A folder for ANDROID_AVD_HOME.
        name: The AVD's name.
        size: Width and height of the screen, in pixels.

    Returns:
        The AVD's own folder.

    Raises:
        FileExistsError: There is an AVD of that name.
    """
    folder = home / f"{name}.avd"
    folder.mkdir(parents=True)
    (home / f"{name}.ini").write_text(
        f"avd.ini.encoding=UTF-8\npath={folder.resolve()}\npath.rel=avd/{folder.name}\ntarget=android-33\n",
        encoding="utf-8",
    )
    facts = {
        "AvdId": name,
        "avd.ini.displayname": name,
        "abi.type": "x86_64",
        "hw.keyboard": "yes",
        "hw.lcd.width": size[0],
        "hw.lcd.height": size[1],
        "image.sysdir.1": "system-images/android-33/google_apis/x86_64/",
    }
    (folder / "config.ini").write_text(
        "".join(f"{key}={value}\n" for key, value in facts.items()), encoding="utf-8"
    )
    return folder
