"""A stand-in for the Android SDK's `emulator` program: python -m tests.support.android.emulator
-avd NAME -port 5556 -no-window

It reads AVD folders like the real program and adds a phone to the fake adb server whose control URL
is in $PRILL_FAKE_ADB. The phone disappears when this program ends: after `adb -s emulator-5556 emu
kill`, a signal, or the end of the server. The phone's state is stored in the AVD's folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from prill.errors import UsageError
from tests.support.android.console import console
from tests.support.android.tools import CONTROL
from tests.support.android.wire import Listener, end_of

USERDATA = "userdata-qemu.img"
FIRST_PORT = 5554
VERSION = "Android emulator version 35.0.0.0 (a stand-in that comes with prill)"
FLAGS = """
    -accel-check -delay-adb -no-accel -no-audio -no-boot-anim -no-cache -no-metrics -no-passive-gps -no-sim -no-skin
    -no-snapshot -no-snapshot-load -no-snapshot-save -no-snapstorage -no-window -read-only -verbose -wipe-data -writable-system
"""  # noqa: E501
VALUED = """
    -accel -avd -camera-back -camera-front -cores -data -dns-server -feature -gpu -grpc -http-proxy -logcat -memory -netdelay
    -netspeed -partition-size -port -ports -prop -screen -skin -snapshot -sysdir -timezone
"""  # noqa: E501


class EmulatorError(Exception):
    """Raised to end the program with this message and exit code 1."""


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed command line: `values` of options with a value, and the `flags` that were set."""

    values: dict[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


def options(arguments: Sequence[str]) -> Options:
    """Parses a command line. Everything after -qemu is ignored. Raises EmulatorError."""
    values: dict[str, str] = {}
    flags: set[str] = set()
    rest = list(arguments)
    while rest and rest[0] != "-qemu":
        word = rest.pop(0)
        if word.startswith("@"):
            values["-avd"] = word[1:]
        elif word in VALUED.split() and rest:
            values[word] = rest.pop(0)
        elif word in FLAGS.split():
            flags.add(word)
        else:
            raise EmulatorError(
                f"unknown option: {word}\nplease use -help for a list of valid options"
            )
    return Options(values, frozenset(flags))


def avd_home() -> Path:
    """Returns the folder of AVDs: $ANDROID_AVD_HOME, else `avd` in $ANDROID_USER_HOME, else
    ~/.android/avd.
    """
    if folder := os.environ.get("ANDROID_AVD_HOME"):
        return Path(folder)
    user = os.environ.get("ANDROID_USER_HOME")
    return (Path(user) if user else Path.home() / ".android") / "avd"


def ini(path: Path) -> dict[str, str]:
    """Returns the pairs of an .ini file without sections. Empty if the file does not exist."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {
        name.strip(): value.strip()
        for name, mark, value in (line.partition("=") for line in lines)
        if mark
    }


def avd_folder(name: str) -> Path:
    """Returns the folder with the AVD's files. Raises EmulatorError."""
    home = avd_home()
    pointer = home / f"{name}.ini"
    if not pointer.exists():
        raise EmulatorError(
            f"Unknown AVD name [{name}], use -list-avds to see valid list.\n"
            f"HOME is defined but there is no file {name}.ini in $HOME/.android/avd\n"
            "(Note: Directories are searched in the order $ANDROID_AVD_HOME, "
            "$ANDROID_SDK_HOME/avd and $HOME/.android/avd)"
        )
    folder = Path(ini(pointer).get("path") or home / f"{name}.avd")
    if not (folder / "config.ini").exists():
        raise EmulatorError(f"Cannot find AVD configuration: there is no {folder / 'config.ini'}")
    return folder


async def emulate(settings: Options) -> None:
    """Runs the phone until it is killed. Raises EmulatorError."""
    name = settings.values.get("-avd", "")
    if not name:
        raise EmulatorError(
            "No AVD specified. Use '@foo' or '-avd foo' to launch a virtual device named 'foo'"
        )
    folder = avd_folder(name)
    userdata = folder / USERDATA
    if not os.environ.get(CONTROL):
        raise EmulatorError(f"set {CONTROL} to the control URL of a fake adb server")
    with (folder / "multiinstance.lock").open("w", encoding="utf-8") as lock:
        if "-read-only" not in settings.flags:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EmulatorError(
                    "Running multiple emulators with the same AVD is an experimental feature.\n"
                    "Please use -read-only flag to enable this feature."
                ) from None
        if "-wipe-data" in settings.flags:
            userdata.unlink(missing_ok=True)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        listener = await _console(settings, name, ended)
        config = ini(folder / "config.ini")
        size = [int(config.get("hw.lcd.width", 720)), int(config.get("hw.lcd.height", 1600))]
        facts = {
            "avd": name,
            "userdata": str(userdata.resolve()),
            "size": size,
            "read_only": "-read-only" in settings.flags,
        }
        try:
            await _hold(listener.port, facts, ended)
        finally:
            await listener.close()


async def _console(settings: Options, name: str, ended: asyncio.Event) -> Listener:
    """Listens on the requested console port, or on the first free even port."""
    wanted_port = (
        settings.values.get("-port") or settings.values.get("-ports", "").partition(",")[0]
    )
    if wanted_port and (not wanted_port.isdecimal() or int(wanted_port) % 2):
        raise EmulatorError(f"invalid port {wanted_port}: it must be an even number")
    for port in [int(wanted_port)] if wanted_port else range(FIRST_PORT, FIRST_PORT + 130, 2):
        try:
            return await Listener(console(name, ended.set, partial(_snapshot, port))).open(port)
        except OSError:
            continue
    if wanted_port:
        raise EmulatorError(f"the console port {wanted_port} is taken")
    raise EmulatorError(
        "It seems too many emulator instances are running on this machine. Aborting."
    )


async def _snapshot(port: int, what: str, name: str) -> None:
    """Asks the server to save or restore the phone's state."""
    try:
        _, writer = await _posted(f"/{what}/{quote(name, safe='')}/emulator-{port}", {})
    except EmulatorError as stop:
        raise UsageError(str(stop)) from None
    writer.close()


async def _hold(port: int, about: dict[str, object], ended: asyncio.Event) -> None:
    """Adds the phone and waits. The phone lives as long as this connection."""
    reader, writer = await _posted(f"/attach/emulator-{port}", about)
    try:
        print("INFO    | boot completed", flush=True)
        waits = [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(end_of(reader))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        writer.close()


async def _posted(
    path: str, about: dict[str, object]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection that the fake adb server accepted. Raises EmulatorError if the server
    refuses or is not running.
    """
    address = urlsplit(os.environ[CONTROL])
    try:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
    except OSError as error:
        raise EmulatorError(
            f"no fake adb server answers at {os.environ[CONTROL]}: {error}"
        ) from None
    try:
        body = json.dumps(about).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        answer = json.loads(
            await reader.readexactly(int(head.lower().partition("content-length:")[2].split()[0]))
        )
        if "error" in answer:
            raise EmulatorError(str(answer["error"]))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        raise EmulatorError("the fake adb server went away") from None
    except EmulatorError:
        writer.close()
        raise
    return reader, writer


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["-list-avds"]:
        print("".join(f"{path.stem}\n" for path in sorted(avd_home().glob("*.ini"))), end="")
        return 0
    if words[:1] == ["-version"]:
        print(VERSION)
        return 0
    try:
        settings = options(words)
        print(f"INFO    | {VERSION}", flush=True)
        asyncio.run(emulate(settings))
    except EmulatorError as stop:
        print(
            "".join(f"ERROR   | {line}\n" for line in str(stop).splitlines()),
            end="",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
