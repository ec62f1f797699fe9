"""The fake companion below the unchanged fb-idb: its command line through idb's Companion, its gRPC
through idb's Client.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.ios import FakeSimulators
from tests.support.ios.simulators import NoSimulatorError, Simulator

if importlib.util.find_spec("idb") is None:
    pytest.skip("fb-idb is not installed: pip install '.[ios]'", allow_module_level=True)

# Client.build itself uses an argument of grpclib that is going away.
pytestmark = pytest.mark.filterwarnings("ignore:The loop argument:DeprecationWarning")
LOG = logging.getLogger("test-idb")


def commands(fakes: FakeSimulators, device_set: Path | None = None) -> Any:
    from idb.common.companion import Companion

    return Companion(str(fakes.companion), str(device_set) if device_set else None, LOG)


@asynccontextmanager
async def connected(fakes: FakeSimulators, udid: str) -> AsyncIterator[Any]:
    from idb.common.types import TCPAddress
    from idb.grpc.client import Client

    process = await asyncio.create_subprocess_exec(
        str(fakes.companion), "--udid", udid, "--grpc-port", "0", stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["grpc_port"]
        async with Client.build(TCPAddress("127.0.0.1", port), LOG) as client:
            yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def fakes(tmp_path: Path) -> FakeSimulators:
    return FakeSimulators(tmp_path / "fake", ["iPhone 14", "iPhone SE"])


async def test_idb_commands_manage_simulators(fakes: FakeSimulators, tmp_path: Path) -> None:
    from idb.common.types import IdbException

    idb, (first, second) = commands(fakes), fakes.udids
    assert [(one.udid, one.name, one.state) for one in await idb.list_targets()] == [
        (first, "iPhone 14", "Shutdown"),
        (second, "iPhone SE", "Shutdown"),
    ]
    await idb.boot(first)
    assert (fakes.read(first).state, fakes.read(second).state) == ("Booted", "Shutdown")
    with pytest.raises(IdbException):
        await idb.clone(first)
    await idb.shutdown(first)
    with fakes.change(first) as simulator:
        simulator.on = ["VPN"]
    copy = await idb.clone(first)
    away = await idb.clone(first, destination_device_set=str(tmp_path / "away"))
    assert fakes.read(copy.udid).on == ["VPN"]
    assert [one.udid for one in await commands(fakes, tmp_path / "away").list_targets()] == [
        away.udid
    ]
    await idb.erase(first)
    assert fakes.read(first).on == Simulator(udid="").on
    await idb.delete(copy.udid)
    with pytest.raises(NoSimulatorError):
        fakes.read(copy.udid)
    made = await idb.create("iPhone 15", "iOS 17.4")
    assert made.name == "iPhone 15"
    with pytest.raises(IdbException):
        await idb.boot("no-such-udid")


async def test_idb_client_drives_the_screens(fakes: FakeSimulators) -> None:
    from idb.common.types import AccessibilityInfoOptions, HIDButtonType, IdbException

    udid = fakes.udids[0]
    await commands(fakes).boot(udid)
    async with connected(fakes, udid) as client:
        size = (await client.describe()).screen_dimensions
        assert (size.width_points, size.height_points, size.width, size.height) == (
            390,
            844,
            1170,
            2532,
        )
        assert Image.open(io.BytesIO(await client.screenshot())).size == (1170, 2532)
        await client.tap(190, 150)
        await client.tap(200, 140)
        await client.text("What's ~ 5% of $7?")
        assert fakes.read(udid).fields == {"com.apple.mobilesafari": "What's ~ 5% of $7?"}
        await client.key(42)
        await client.key(40)
        assert fakes.read(udid).lines["com.apple.mobilesafari"] == ["Results for What's ~ 5% of $7"]
        for nested in (True, False):
            told = json.loads(
                (
                    await client.accessibility_info(None, AccessibilityInfoOptions(nested=nested))
                ).json
            )
            assert (len(told), told[0]["AXLabel"], "children" in told[0]) == (
                1 if nested else 4,
                "Safari",
                nested,
            )
        await client.button(HIDButtonType.HOME)
        await client.swipe((300, 422), (80, 422), 0.1)
        assert (fakes.read(udid).app, fakes.read(udid).page) == (None, 1)
        await client.set_location(40.5, -74.25)
        assert fakes.read(udid).location == (40.5, -74.25)
        await client.launch("com.apple.Preferences")
        await client.swipe((195, 700), (195, 300), 0.1)
        assert fakes.read(udid).scroll > 0
        await client.swipe((195, 840), (195, 400), 0.1)
        assert fakes.read(udid).app is None
        await client.open_url("https://example.org/")
        assert fakes.read(udid).app == "com.apple.mobilesafari"
        for refused in (
            client.launch("com.example.none"),
            client.open_url("nonsense"),
            client.list_apps(),
        ):
            with pytest.raises(IdbException):
                await refused
    assert not Path("/tmp/idb").exists() or not list(Path("/tmp/idb").rglob(f"*{udid}*"))


async def test_simulators_keep_their_state_apart(fakes: FakeSimulators) -> None:
    for udid in fakes.udids:
        await commands(fakes).boot(udid)
    async with (
        connected(fakes, fakes.udids[0]) as first,
        connected(fakes, fakes.udids[1]) as second,
    ):
        await asyncio.gather(
            first.launch("com.apple.MobileSMS"), second.launch("com.apple.Preferences")
        )
    async with connected(fakes, fakes.udids[0]) as first:
        await first.tap(100, 140)
    states = [fakes.read(udid) for udid in fakes.udids]
    assert [(one.app, one.focused) for one in states] == [
        ("com.apple.MobileSMS", True),
        ("com.apple.Preferences", False),
    ]


async def test_faults_happen_as_often_as_planned(fakes: FakeSimulators) -> None:
    from idb.common.types import IdbException

    udid = fakes.udids[0]
    await commands(fakes).boot(udid)
    fakes.faults(screenshot=["error", "small"], describe="error")
    async with connected(fakes, udid) as client:
        with pytest.raises(IdbException, match="told to fail"):
            await client.screenshot()
        assert Image.open(io.BytesIO(await client.screenshot())).size == (320, 200)
        assert Image.open(io.BytesIO(await client.screenshot())).size == (1170, 2532)
        for _ in range(2):
            with pytest.raises(IdbException):
                await client.describe()
        fakes.faults()
        assert (await client.describe()).state == "Booted"


def test_folder_made_by_a_command(tmp_path: Path) -> None:
    make = [
        sys.executable,
        "-m",
        "tests.support.ios",
        "--make",
        str(tmp_path / "fake"),
        "--names",
        "A,B",
    ]
    done = subprocess.run(make, capture_output=True, text=True, check=True)
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()[:2]] == ["A", "B"]
    assert str(tmp_path / "fake" / "idb_companion") in done.stdout
    again = subprocess.run(make, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout, "a folder that is there is taken up"
    wrong = subprocess.run(
        [str(tmp_path / "fake" / "simctl"), "erase", "all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (wrong.returncode, wrong.stdout) == (64, "")
    assert "pbcopy" in wrong.stderr
