"""Virtual devices, on a stand-in for the `emulator` program that adds its phone to a fake adb
server.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.emulators.android import avd as avd_module
from prill.emulators.android.adb import AdbPhone
from prill.emulators.android.avd import PREFIX, Avd
from prill.emulators.android.environment import Android, AndroidSpec
from prill.errors import EnvironmentFailedError
from prill.types import Action, Task
from tests.support.android import FakeAdb, write_avd, write_tools

SETTINGS = Task(goal="settings", start_url="app:com.android.settings/.Settings")
BOUND = 60.0


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


async def test_several_devices_run_at_once(adb: FakeAdb, home: Path) -> None:
    devices = [avd(adb, home) for _ in range(2)]
    serials = await asyncio.gather(*(device.fresh() for device in devices))
    assert len(set(serials)) == 2
    assert {phone.serial for phone in adb.phones} == set(serials)
    await asyncio.gather(*(device.close() for device in devices))
    assert copies() == []


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
