"""What breaks below the iOS environment ends within its bound, says so, and leaves nothing
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from prill.emulators.ios.environment import Ios
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Task
from tests.support.ios import FakeSimulators
from tests.support.ios.simulators import Simulator, new_udid

if importlib.util.find_spec("idb") is None:
    pytest.skip("fb-idb is not installed: pip install '.[ios]'", allow_module_level=True)

TASK = Task(id="t", goal="g", platform="ios", start_url="app:com.apple.Preferences")
SWITCH = Action("click", target="[3] CheckBox 'Airplane Mode'")
ON, OFF = "'Airplane Mode' value: '1'", "'Airplane Mode' value: '0'"
# Seconds that a failure may take beside the bounds that it runs into, on a machine that does other
# things as well.
SLACK = 60.0
# Seconds, where the same bound holds for a companion, or for a command, that has to work: Python
# starts for them.
BOUND, BRIEF = 5.0, 3.0


async def killed(process: int) -> None:
    """Returns when the event loop has had time to see the connection break, as it has while an
    agent thinks.
    """
    os.kill(process, signal.SIGKILL)
    async with asyncio.timeout(SLACK):
        # Until the event loop has noticed that its child has ended.
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(process, 0)
                await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


async def begins_again(phone: Ios, simulators: FakeSimulators) -> None:
    """Without faults the next episode is as good as any."""
    simulators.faults()
    seen = await phone.reset(TASK)
    assert seen.text is not None and OFF in seen.text
    after, _ = await phone.step(SWITCH)
    assert after.text is not None and ON in after.text


async def test_killed_companion_is_replaced(
    make_running: Callable[..., Ios],
    simulators: FakeSimulators,
    companions: Callable[[], list[int]],
) -> None:
    phone = make_running()
    await phone.reset(TASK)
    await phone.step(SWITCH)
    [companion] = companions()
    await killed(companion)
    seen, _ = await phone.step(Action("click", target="[4]"))
    assert seen.text is not None and ON in seen.text and "'Wi-Fi' value: '0'" in seen.text
    assert companions() not in ([], [companion])
    [second] = companions()
    await killed(second)
    with pytest.raises(EnvironmentFailedError, match=r"killed by signal 9|has exited"):
        await phone.step(SWITCH)
    assert companions() == [], "one new companion for an episode, then it is over"


@pytest.mark.parametrize("fault", ["die", "hang", "error"])
async def test_reads_are_repeated_once(
    make_running: Callable[..., Ios], simulators: FakeSimulators, fault: str
) -> None:
    phone = make_running(timeout=BOUND)
    first = await phone.reset(TASK)
    simulators.faults(screenshot=["ok", fault])
    assert await phone.step(Action("wait")) == (first, False)
    simulators.faults(screenshot="error")
    with pytest.raises(
        EnvironmentFailedError, match="screenshot: the simulator says: screenshot was told to fail"
    ):
        await phone.step(Action("wait"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("die", r"tap: idb_companion ended \(killed by signal 9\)"),
        ("hang", "tap: no response from the simulator within 5 s"),
        ("error", "tap: the simulator says: hid was told to fail"),
        ("gone", r"tap: (the simulator says: no simulator \S+ in |idb_companion ended)"),
    ],
)
async def test_acts_are_never_sent_twice(
    make_ios: Callable[..., Ios],
    make_running: Callable[..., Ios],
    simulators: FakeSimulators,
    fault: str,
    message: str,
) -> None:
    phone = (make_ios if fault == "gone" else make_running)(timeout=BOUND)
    await phone.reset(TASK)
    simulators.faults(hid=[fault])
    with pytest.raises(EnvironmentFailedError, match=message):
        await phone.step(SWITCH)
    assert [event for event in simulators.events() if event.startswith("tap")] == []
    with pytest.raises(UsageError, match="call reset first"):
        await phone.step(SWITCH)
    await begins_again(phone, simulators)


@pytest.mark.parametrize(
    ("restore", "bounds", "faults", "message"),
    [
        ("clone", {}, {"clone": "error"}, "idb_companion .*--clone .* was told to fail"),
        ("clone", {}, {"boot": "error"}, "idb_companion .*--boot .* was told to fail"),
        (
            "none",
            {"boot_timeout": BRIEF},
            {"boot": "hang"},
            r"idb_companion .*--boot .*: not finished after 3 s",
        ),
        (
            "none",
            {"boot_timeout": BRIEF},
            {"boot": "slow:600"},
            "was not ready 3 s after its start; .* state Booting",
        ),
        (
            "none",
            {"timeout": 1.0},
            {"list": "hang"},
            r"idb_companion --list .*: not finished after 1 s",
        ),
        ("on", {"timeout": BRIEF}, {"start": "hang"}, "was not ready within 3 s"),
        (
            "on",
            {},
            {"start": "error"},
            r"did not start: idb_companion ended \(exit status 1\): FBSimulatorError: told to fail",
        ),
        ("on", {}, {"start": "garbage"}, r"did not start: idb_companion ended \(exit status 1\)"),
        (
            "on",
            {},
            {"connect": "die"},
            r"did not start: idb_companion ended \(killed by signal 9\)",
        ),
        (
            "on",
            {"boot_timeout": 1.0},
            {"describe": "empty"},
            "was not ready 1 s .* last status: no screen size",
        ),
        ("on", {}, {"describe": "die"}, r"description: idb_companion ended \(killed by signal 9\)"),
        (
            "on",
            {"boot_timeout": 1.0},
            {"accessibility_info": "empty"},
            "last status: a screen without elements",
        ),
        (
            "on",
            {},
            {"screenshot": "small"},
            "the screenshot has 320x200 pixels, but the screen 390x844",
        ),
        ("on", {}, {"screenshot": "garbage"}, r"the screenshot is incomplete \(13 bytes\)"),
        ("on", {}, {"screenshot": "cut"}, r"the screenshot is incomplete \(\d+ bytes\)"),
        ("on", {}, {"launch": "error"}, "launch: the simulator says: launch was told to fail"),
    ],
    ids=lambda value: (
        "-".join(f"{key}-{word}" for key, word in value.items()) if isinstance(value, dict) else "."
    ),
)
async def test_failed_start_ends_in_bounds(
    make_ios: Callable[..., Ios],
    make_running: Callable[..., Ios],
    simulators: FakeSimulators,
    companions: Callable[[], list[int]],
    temporary: Path,
    restore: str,
    bounds: dict[str, float],
    faults: dict[str, str],
    message: str,
) -> None:
    phone = make_running(**bounds) if restore == "on" else make_ios(restore=restore, **bounds)
    simulators.faults(**faults)
    began = time.monotonic()
    with pytest.raises(EnvironmentFailedError, match=message):
        await phone.reset(TASK)
    assert time.monotonic() - began < SLACK
    assert companions() == []
    assert list(temporary.iterdir()) == []
    await begins_again(make_running(), simulators)


KILLED = """
import asyncio, sys, tempfile
from pathlib import Path
from prill.emulators.ios.environment import Ios, IosSpec
from prill.types import Task
companion, tempfile.tempdir, images, restore = sys.argv[1:]
async def main():
    phone = Ios(Path(images), IosSpec(companion=companion, restore=restore))
    await phone.reset(Task(id="t", goal="g"))
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("restore", ["clone", "none"])
async def test_killed_run_is_cleared_up(
    make_ios: Callable[..., Ios],
    simulators: FakeSimulators,
    companions: Callable[[], list[int]],
    temporary: Path,
    tmp_path: Path,
    restore: str,
) -> None:
    arguments = [str(simulators.companion), str(temporary), str(tmp_path / "images"), restore]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True
    ) as dead:
        assert dead.stdout is not None
        assert dead.stdout.readline() == "ready\n"
        living = make_ios(restore=restore)
        await living.reset(TASK)
        assert len(list(temporary.glob("prill-ios-*"))) == 2, (
            "what belongs to a run that lives is left alone"
        )
        dead.kill()
    await living.close()
    await make_ios(restore=restore).reset(TASK)
    assert len(list(temporary.glob("prill-ios-*"))) == 1
    async with asyncio.timeout(SLACK):
        while len([pid for pid in companions() if pid != dead.pid]) > 1:
            await asyncio.sleep(0.1)


def resources() -> Sequence[int]:
    gc.collect()
    return (
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
        len(asyncio.all_tasks()),
    )


@pytest.mark.slow
async def test_twenty_episodes_leak_nothing(
    make_ios: Callable[..., Ios],
    simulators: FakeSimulators,
    companions: Callable[[], list[int]],
    temporary: Path,
) -> None:
    other = Simulator(udid=new_udid(), name="iPhone 15", density=1, booted=True)
    simulators.add(other)
    phones = make_ios(simulator="iPhone 14"), make_ios(simulator="iPhone 15", restore="none")

    async def episode(phone: Ios) -> None:
        await phone.reset(TASK)
        await phone.step(SWITCH)

    for number in range(10):
        await asyncio.gather(*map(episode, phones))
        assert len(companions()) == 2
        if number == 4:
            early, objects = resources(), len(gc.get_objects())
    late = resources()
    assert late[0] <= early[0] + 2 and late[1] <= early[1] + 2 and late[2] == early[2]
    assert len(gc.get_objects()) < objects + 750
    assert len(list(temporary.glob("prill-ios-*/copies/*.sim"))) == 1
    assert len(list(temporary.glob("prill-ios-*/*.sock"))) <= 2
