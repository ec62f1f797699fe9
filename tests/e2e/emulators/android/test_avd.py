"""Virtual devices, on a stand-in for the `emulator` program that adds its phone to a fake adb
server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.emulators.android import avd as avd_module
from prill.emulators.android.adb import AdbPhone
from prill.emulators.android.avd import PREFIX, Avd, copy_avd
from prill.emulators.android.environment import Android, AndroidSpec
from prill.emulators.requirements import android_tools
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Task
from tests.support.android import FakeAdb, write_avd, write_tools

SETTINGS = Task(goal="settings", start_url="app:com.android.settings/.Settings")
BOUND = 60.0


def free_port() -> int:
    """An even port that is free together with the next one; far from where real emulators begin."""
    for port in range(5640, 5683, 2):
        try:
            for one in (port, port + 1):
                socket.create_server(("127.0.0.1", one)).close()
        except OSError:
            continue
        return port
    pytest.skip("no port between 5640 and 5683 is free")


@pytest.fixture
def adb(adb_path: str, adb_ports: list[int]) -> Iterator[FakeAdb]:
    with FakeAdb((), frames=0, size=(360, 800)) as adb:
        adb_ports.append(adb.port)
        yield adb


@pytest.fixture
def home(adb: FakeAdb, adb_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of AVDs with one called base, and a folder for temporary files of its own."""
    monkeypatch.setenv(
        "ANDROID_HOME", str(write_tools(tmp_path / "sdk", adb.control_url, adb=adb_path))
    )
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    write_avd(tmp_path / "avd", "base", size=(360, 800))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "avd"


def avd(adb: FakeAdb, home: Path, **more: object) -> Avd:
    given: dict[str, object] = {
        "home": home,
        "adb_port": adb.port,
        "boot_timeout": BOUND,
        "stop_timeout": 5.0,
        "poll": 0.05,
    }
    return Avd("base", **{**given, **more})  # type: ignore[arg-type]


def copies() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


async def test_each_episode_has_a_fresh_device(adb: FakeAdb, home: Path, tmp_path: Path) -> None:
    environment = Android(
        tmp_path / "images",
        AndroidSpec(settle_gap=0.0),
        phone=AdbPhone(adb.port),
        virtual_device=avd(adb, home),
    )
    for _ in range(2):
        await environment.reset(SETTINGS)
        assert not adb.phones[0].screen.toggles["Bluetooth"]
        await environment.step(Action("click", point=(0.5, 0.25)))
        assert adb.phones[0].screen.toggles["Bluetooth"]
        assert len(copies()) == 1
    await environment.close()
    assert adb.phones == ()
    assert copies() == []
    # The AVD itself was only read.
    assert sorted(path.name for path in (home / "base.avd").iterdir()) == ["config.ini"]


async def test_slow_boot_is_waited_for_in_bounds(adb: FakeAdb, home: Path) -> None:
    adb.start_fault = "slow-boot"
    device = avd(adb, home)
    assert (await device.fresh()).startswith("emulator-")
    assert adb.phones[0].booted()
    adb.start_fault = "never-boots"
    never = avd(adb, home, boot_timeout=4.0)
    begun = time.monotonic()
    with pytest.raises(
        EnvironmentFailedError, match="base did not boot within 4 s: sys.boot_completed is not set"
    ):
        await never.fresh()
    assert time.monotonic() - begun < BOUND
    assert len(adb.phones) == len(copies()) == 1
    adb.start_fault = "none"
    await never.fresh()
    await never.close()
    await device.close()
    assert copies() == []


async def test_several_devices_run_at_once(adb: FakeAdb, home: Path) -> None:
    devices = [avd(adb, home) for _ in range(2)]
    serials = await asyncio.gather(*(device.fresh() for device in devices))
    assert len(set(serials)) == 2
    assert {phone.serial for phone in adb.phones} == set(serials)
    await asyncio.gather(*(device.close() for device in devices))
    assert copies() == []


async def test_processes_never_share_a_device(adb: FakeAdb, home: Path, tmp_path: Path) -> None:
    """An emulator takes its ports a while after it was started: this one never does."""
    started, program = tmp_path / "started", tmp_path / "emulator"
    program.write_text(
        f"#!/bin/sh\necho $4 > {started}.part; mv {started}.part {started}; sleep 600\n"
    )
    program.chmod(0o755)
    code = (
        "import asyncio\nfrom pathlib import Path\nfrom prill.emulators.android.avd import Avd\n"
        f"device = Avd('base', home=Path({str(home)!r}), emulator=Path({str(program)!r}), "
        f"adb_port={adb.port})\n"
        "async def main():\n    try:\n        await device.fresh()\n    finally:\n        await "
        "device.close()\n"
        "asyncio.run(main())\n"
    )
    here = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    other = subprocess.Popen([sys.executable, "-c", code], env=here, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + BOUND
        while not started.exists() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        device = avd(adb, home)
        assert await device.fresh() != f"emulator-{started.read_text().strip()}"
        await device.close()
    finally:
        other.send_signal(signal.SIGINT)
        other.wait(BOUND)
    assert copies() == []


async def test_port_known_to_adb_is_left_alone(adb: FakeAdb, home: Path) -> None:
    first = avd(adb, home)
    taken = await first.fresh()
    await first.close()
    adb.make(taken)
    device = avd(adb, home)
    assert await device.fresh() != taken
    await device.close()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'ERROR   | x86_64 emulation requires hardware acceleration! /dev/kvm is not "
            "found' >&2; exit 1",
            "/dev/kvm is not",
        ),
        ("exit 3", r"status 3.*it said nothing"),
    ],
)
async def test_failed_start_tells_its_last_words(
    adb: FakeAdb, home: Path, tmp_path: Path, script: str, words: str
) -> None:
    program = tmp_path / "emulator"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentFailedError, match=words):
        await avd(adb, home, emulator=program).fresh()
    assert copies() == []


async def test_unknown_avd_is_a_usage_error(
    adb: FakeAdb, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="unknown AVD 'other' in .*; expected one of base"):
        await Avd("other", home=home, adb_port=adb.port).fresh()
    (Path(os.environ["ANDROID_HOME"]) / "emulator" / "emulator").unlink()
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(UsageError, match="the Android emulator is not installed"):
        await avd(adb, home).fresh()
    assert copies() == []


async def test_port_in_use_is_no_device_of_ours(
    adb: FakeAdb, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr(avd_module, "PORTS", range(port, port + 2, 2))
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(EnvironmentFailedError, match=f"no port between {port} and {port + 1}"),
    ):
        await avd(adb, home).fresh()
    device = avd(adb, home)
    assert await device.fresh() == f"emulator-{port}"
    await device.close()


async def test_dead_emulator_is_replaced_next_time(
    adb: FakeAdb, home: Path, tmp_path: Path
) -> None:
    phone = AdbPhone(adb.port, timeout=2.0)
    environment = Android(
        tmp_path / "images", AndroidSpec(settle_gap=0.0), phone=phone, virtual_device=avd(adb, home)
    )
    await environment.reset(SETTINGS)
    [folder] = copies()
    os.kill(int((folder / "emulator.pid").read_text()), signal.SIGKILL)
    with pytest.raises(
        EnvironmentFailedError, match="the emulator of base exited with status -9|is not connected"
    ):
        for _ in range(100):
            await environment.step(Action("wait"))
    assert copies() == []
    await environment.reset(SETTINGS)
    await environment.close()
    assert (adb.phones, copies()) == ((), [])


async def test_stubborn_emulator_is_killed(adb: FakeAdb, home: Path, tmp_path: Path) -> None:
    program = tmp_path / "emulator"
    program.write_text("#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done\n")
    program.chmod(0o755)
    device = avd(adb, home, emulator=program, boot_timeout=1.0, stop_timeout=0.5)
    with pytest.raises(EnvironmentFailedError, match="did not boot within 1 s"):
        await device.fresh()
    assert copies() == []
    assert (
        str(program)
        not in subprocess.run(
            ["ps", "-eo", "args"], capture_output=True, text=True, check=True
        ).stdout
    )


async def test_snapshot_replaces_a_new_boot(
    adb: FakeAdb, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = avd(adb, home, snapshot="clean")
    environment = Android(
        tmp_path / "images",
        AndroidSpec(settle_gap=0.0),
        phone=AdbPhone(adb.port),
        virtual_device=device,
    )
    await environment.reset(SETTINGS)
    phone = adb.phones[0]
    for _ in range(2):
        await environment.step(Action("click", point=(0.5, 0.25)))
        assert phone.screen.toggles["Bluetooth"]
        await environment.reset(SETTINGS)
        assert not phone.screen.toggles["Bluetooth"]
    assert list(adb.phones) == [phone]
    phone.snapshots.clear()
    await environment.reset(SETTINGS)  # cannot go back, so it is replaced
    assert adb.phones[0] is not phone
    assert list(adb.phones[0].snapshots) == ["clean"]
    await environment.close()
    monkeypatch.setattr(avd_module, "FLAGS", (*avd_module.FLAGS, "-read-only"))
    with pytest.raises(
        EnvironmentFailedError, match="`avd snapshot save clean` failed: KO: .*-read-only"
    ):
        await avd(adb, home, snapshot="clean").fresh()
    assert (adb.phones, copies()) == ((), [])


async def test_copy_has_own_paths_and_no_locks(tmp_path: Path) -> None:
    home, target = tmp_path / "old", tmp_path / "new"
    source = write_avd(home, "base")
    (source / "hardware-qemu.ini").write_text(
        f"disk.dataPartition.path = {source}/userdata-qemu.img\nandroid.avd.home = {home}\n"
    )
    (source / "hardware-qemu.ini.lock").touch()
    (source / "snapshots" / "default_boot").mkdir(parents=True)
    (source / "data").mkdir()
    (source / "data" / "userdata.img").write_bytes(b"\0\1")
    target.mkdir()
    await copy_avd("base", home, target)
    copy = target / "base.avd"
    assert f"path={copy}\n" in (target / "base.ini").read_text()
    assert "path.rel" not in (target / "base.ini").read_text()
    assert str(home) not in (copy / "hardware-qemu.ini").read_text()
    assert (
        f"disk.dataPartition.path = {copy}/userdata-qemu.img"
        in (copy / "hardware-qemu.ini").read_text()
    )
    assert sorted(path.name for path in copy.iterdir()) == [
        "config.ini",
        "data",
        "hardware-qemu.ini",
    ]
    assert (copy / "data" / "userdata.img").read_bytes() == b"\0\1"


async def test_tools_are_listed_without_a_start(
    adb: FakeAdb, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adb.make("emulator-5554")
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(adb.port))
    monkeypatch.setenv("ANDROID_AVD_HOME", str(home))
    monkeypatch.setenv("APPIUM_HOME", str(home / "none"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        unused = taken.getsockname()[1]
    found = {tool.name: tool.found for tool in await android_tools(f"http://127.0.0.1:{unused}")}
    assert found["adb"] is not None and "Android Debug Bridge" in found["adb"]
    assert found["connected phones"] == "emulator-5554 (device)"
    assert found["AVDs"] == "base"
    assert found["emulator"] == os.environ["ANDROID_HOME"] + "/emulator/emulator"
    assert (found["UiAutomator2 driver"], found["Appium server"]) == (None, None)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(unused))
    assert {tool.name: tool.found for tool in await android_tools()}["connected phones"] is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", unused), 1).close()


@pytest.mark.skipif(
    sys.platform != "linux", reason="the emulator of a killed run is found through /proc"
)
async def test_killed_run_is_cleared_up(adb: FakeAdb, home: Path) -> None:
    program = (
        "import asyncio, os, signal, tempfile\nfrom pathlib import Path\nfrom "
        "prill.emulators.android.avd import Avd\n"
        f"tempfile.tempdir = {tempfile.gettempdir()!r}\n"
        f"asyncio.run(Avd('base', home=Path({str(home)!r}), adb_port={adb.port}, "
        "poll=0.05).fresh())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], timeout=BOUND, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(copies()) == len(adb.phones) == 1
    left = adb.phones[0]
    device = avd(adb, home)
    await device.fresh()
    assert left not in adb.phones
    assert len(copies()) == 1
    await device.close()
    assert copies() == []
