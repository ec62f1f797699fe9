"""What a broken phone, adb server, Appium or instrumentation does to an episode: noticed in time,
mended once, or on record.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prill.emulators.android.adb import AdbPhone
from prill.emulators.android.appium import AppiumPhone
from prill.emulators.android.environment import Android, AndroidSpec
from prill.emulators.android.phone import Phone
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError
from prill.types import Action, Observation, Step, Task
from tests.support.android import FakeAdb

SETTINGS = Task(goal="settings", start_url="app:com.android.settings/.Settings")
# For each command; generous, for the machine may be busy, and short beside BOUND.
TIMEOUT = 2.0
# A fault may show in two commands and a new session, and the session's end waits as well.
BOUND = 60.0


SERIALS = itertools.count(5570, 2)


@pytest.fixture
def fake_adb(adb_path: str, adb_ports: list[int]) -> Iterator[FakeAdb]:
    """A phone of its own name for each test: Appium is a while in ending with one that broke, and
    holds up its namesakes.
    """
    with FakeAdb((f"emulator-{next(SERIALS)}",)) as adb:
        adb_ports.append(adb.port)
        yield adb


@pytest.fixture(params=["adb", "appium"])
def phone(request: pytest.FixtureRequest, fake_adb: FakeAdb) -> Phone:
    fake_adb.phone().frames = 0
    if request.param == "adb":
        return AdbPhone(fake_adb.port, timeout=TIMEOUT)
    return AppiumPhone(
        request.getfixturevalue("appium"),
        adb_port=fake_adb.port,
        timeout=TIMEOUT,
        open_timeout=30.0,
    )


@pytest.fixture
async def environment(phone: Phone, tmp_path: Path) -> AsyncIterator[Android]:
    android = Android(
        tmp_path, AndroidSpec(settle_gap=0.0, settle_timeout=0.2, idle=0.0), phone=phone
    )
    yield android
    await android.close()


def prill_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("prill-appium")]


def instrumented(port: int) -> bool:
    """Whether a command that runs an instrumentation, on a phone of the adb server at `port`, is
    under way.
    """
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True
    ).stdout
    return any(f" -P {port} " in line and "am instrument" in line for line in listed.splitlines())


class Waiting:
    """Waits, and has the fault come after its first action. It stops when there is none."""

    def __init__(self, adb: FakeAdb, fault: str) -> None:
        self.adb, self.fault, self.steps = adb, fault, 0

    def reset(self, task: Task) -> None:
        self.steps = 0

    async def act(self, observation: Observation) -> Step:
        self.steps += 1
        if self.steps == 2:
            self.adb.fault(self.fault)
        elif self.steps > 2:
            await asyncio.sleep(0.1)
        return Step(
            observation, Action("stop" if self.fault == "none" and self.steps == 4 else "wait")
        )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hang", "screenshot|screencap"),
        ("freeze", "no response|timed out|timeout|was not received"),
        ("lost", "SERIAL is not connected"),
        ("offline", "SERIAL is offline"),
        ("adb-down", "connection to adb broke|no adb server|not an adb server"),
        (
            "wrong-size",
            "the screenshot has 360 x 800 pixels, but the phone says its screen has 720 x 1600",
        ),
    ],
)
async def test_lasting_fault_ends_only_its_episode(
    environment: Android, fake_adb: FakeAdb, fault: str, words: str
) -> None:
    begun = time.monotonic()
    broken = await run_episode(Waiting(fake_adb, fault), environment, SETTINGS, id="broken")
    assert time.monotonic() - begun < BOUND
    assert broken.error is not None
    assert broken.metadata["ended_by"] == "error"
    assert any(
        word in broken.error for word in words.replace("SERIAL", fake_adb.phone().serial).split("|")
    ), broken.error
    # A session that Appium has open goes on for a moment without the adb server.
    assert len(broken.steps) == 2 or fault == "adb-down"
    assert broken.final is None

    fake_adb.reset()
    good = await run_episode(Waiting(fake_adb, "none"), environment, SETTINGS, id="good")
    assert (good.error, good.metadata["ended_by"]) == (None, "agent")


async def test_passing_fault_costs_a_new_session(environment: Android, fake_adb: FakeAdb) -> None:
    await environment.reset(SETTINGS)
    fake_adb.fault("hang")
    threading.Timer(TIMEOUT * 1.2, fake_adb.fault, ("none",)).start()
    seen, _ = await environment.step(Action("wait"))
    assert seen.text is not None and "Wi-Fi" in seen.text


async def test_crashed_instrumentation_is_mended(
    appium: str, fake_adb: FakeAdb, tmp_path: Path
) -> None:
    environment = Android(
        tmp_path,
        AndroidSpec(settle_gap=0.0, idle=0.0),
        phone=AppiumPhone(appium, adb_port=fake_adb.port),
    )
    fake_adb.fault("crash")  # as soon as the session has begun
    await environment.reset(SETTINGS)
    sessions = fake_adb.phone().sessions
    fake_adb.fault("crash")
    seen, _ = await environment.step(Action("wait"))
    assert seen.text is not None and "Wi-Fi" in seen.text
    assert fake_adb.phone().sessions == sessions + 1
    fake_adb.fault("crash-always")
    with pytest.raises(EnvironmentFailedError, match="new session"):
        await environment.step(Action("wait"))
    await environment.close()


async def test_doubtful_tap_is_not_repeated(appium: str, fake_adb: FakeAdb, tmp_path: Path) -> None:
    environment = Android(
        tmp_path, AndroidSpec(settle_gap=0.0), phone=AppiumPhone(appium, adb_port=fake_adb.port)
    )
    await environment.reset(SETTINGS)
    fake_adb.fault("crash")
    with pytest.raises(
        EnvironmentFailedError, match="may have been carried out, so it was not repeated"
    ):
        await environment.step(Action("click", point=(0.5, 0.25)))
    await environment.close()


async def test_unsent_tap_is_made_on_a_new_session(
    appium: str, fake_adb: FakeAdb, tmp_path: Path
) -> None:
    environment = Android(
        tmp_path, AndroidSpec(settle_gap=0.0), phone=AppiumPhone(appium, adb_port=fake_adb.port)
    )
    await environment.reset(SETTINGS)
    fake = fake_adb.phone()
    # Between two steps, while the agent thinks.
    fake.crashed = True
    fake.running.discard("io.appium.uiautomator2.server")
    end = time.monotonic() + 20
    while instrumented(fake_adb.port) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)  # Appium is told that the command has ended
    await environment.step(Action("click", point=(0.5, 0.25)))
    assert fake.screen.toggles["Bluetooth"]
    await environment.close()


async def test_killed_appium_leaves_no_thread(
    appium_server: Callable[..., AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]],
    fake_adb: FakeAdb,
    tmp_path: Path,
) -> None:
    with appium_server() as (url, server):
        phone = AppiumPhone(url, adb_port=fake_adb.port, timeout=TIMEOUT)
        environment = Android(tmp_path, AndroidSpec(settle_gap=0.0, idle=0.0), phone=phone)
        await environment.reset(SETTINGS)
        server.kill()
        server.wait()
        with pytest.raises(EnvironmentFailedError, match=f"no Appium server responds at {url}"):
            await environment.step(Action("wait"))
    await environment.close()
    for thread in prill_threads():
        thread.join(BOUND)
    assert not prill_threads()
