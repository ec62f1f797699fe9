"""What breaks below the iOS environment ends within its bound, says so, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from prill.emulators.ios import Ios
from prill.emulators.own_folder import OwnFolder, abandoned, taken_over
from prill.errors import EnvironmentFailure, UsageError
from prill.fakes import ReplayPolicy
from prill.fakes.ios import FakeSimulators
from prill.loop import rollout
from prill.types import Action, Observation, Task

if importlib.util.find_spec("idb") is None:
    pytest.skip("fb-idb is not installed: pip install 'prill[ios]'", allow_module_level=True)

TASK = Task(id="t", goal="g", platform="ios", start_url="app:com.apple.Preferences")
SWITCH = Action("click", target="[3] CheckBox 'Airplane Mode'")
ON, OFF = "'Airplane Mode' value: '1'", "'Airplane Mode' value: '0'"
# Seconds that a failure may take beside the bounds that it runs into, on a machine that does other things as well.
SLACK = 60.0
# Seconds: small enough to be run into by tests, large enough for a start of Python on a busy machine.
BOUND = 5.0


def processes(words: Path) -> list[int]:
    """Those whose command line names the path."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if str(words) in line]


async def killed(process: int) -> None:
    """Returns when the event loop has had time to see the connection break, as it has while an agent thinks."""
    os.kill(process, signal.SIGKILL)
    await asyncio.sleep(0.3)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which has to be empty in the end. Sockets need short names, so not below tmp_path."""
    with tempfile.TemporaryDirectory(prefix="ios", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def fakes(tmp_path: Path) -> Iterator[FakeSimulators]:
    fakes = FakeSimulators(tmp_path / "fake")
    yield fakes
    assert processes(fakes.folder) == []


@pytest_asyncio.fixture
async def make(fakes: FakeSimulators, temporary: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Ios]]:
    """Makes environments without pauses, which are closed in the end."""
    async with AsyncExitStack() as opened:

        def one(**options: Any) -> Ios:
            options = {"location": None, "after_action": 0.0, "still_gap": 0.0, **options}
            made = Ios(tmp_path / "images", companion=str(fakes.companion), **options)
            opened.push_async_callback(made.close)
            return made

        yield one


async def begins_anew(phone: Ios, fakes: FakeSimulators) -> None:
    """Without faults the next episode is as good as any."""
    fakes.faults()
    seen = await phone.reset(TASK)
    assert seen.text is not None and OFF in seen.text
    after, _ = await phone.step(SWITCH)
    assert after.text is not None and ON in after.text


async def test_a_companion_killed_between_two_actions_is_replaced_and_the_phone_goes_on(
    make: Callable[..., Ios], fakes: FakeSimulators
) -> None:
    phone = make()
    await phone.reset(TASK)
    await phone.step(SWITCH)
    [companion] = processes(fakes.folder)
    await killed(companion)
    seen, _ = await phone.step(Action("click", target="[4]"))
    assert seen.text is not None and ON in seen.text and "'Wi-Fi' value: '0'" in seen.text
    assert processes(fakes.folder) not in ([], [companion])
    [second] = processes(fakes.folder)
    await killed(second)
    with pytest.raises(EnvironmentFailure, match=r"killed by signal 9|had ended"):
        await phone.step(SWITCH)
    assert processes(fakes.folder) == [], "one new companion for an episode, then it is over"
    await begins_anew(phone, fakes)


@pytest.mark.parametrize("fault", ["die", "hang", "error"])
async def test_what_reads_is_asked_again_once_of_a_new_companion(
    make: Callable[..., Ios], fakes: FakeSimulators, fault: str
) -> None:
    phone = make(timeout=BOUND)
    first = await phone.reset(TASK)
    fakes.faults(screenshot=["ok", fault])
    assert await phone.step(Action("wait")) == (first, False)
    with pytest.raises(
        EnvironmentFailure, match=r"screenshot: (idb_companion ended|no answer .*within 5 s|the simulator says)"
    ):
        fakes.faults(screenshot=fault)
        await phone.step(Action("wait"))
    await begins_anew(phone, fakes)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("die", r"tap: idb_companion ended \(killed by signal 9\)"),
        ("hang", "tap: no answer from the simulator within 5 s"),
        ("error", "tap: the simulator says: hid was told to fail"),
        ("gone", r"tap: the simulator says: no simulator \S+ in "),
    ],
)
async def test_what_acts_is_never_sent_twice(make: Callable[..., Ios], fakes: FakeSimulators, fault: str, message: str) -> None:
    phone = make(timeout=BOUND)
    await phone.reset(TASK)
    fakes.faults(hid=[fault])
    with pytest.raises(EnvironmentFailure, match=message):
        await phone.step(SWITCH)
    assert [event for event in fakes.events() if event.startswith("tap")] == []
    with pytest.raises(UsageError, match="call reset first"):
        await phone.step(SWITCH)
    await begins_anew(phone, fakes)


@pytest.mark.parametrize(
    ("bounded", "faults", "message"),
    [
        (None, {"clone": "error"}, "idb_companion .*--clone .* was told to fail"),
        (None, {"boot": "error"}, "idb_companion .*--boot .* was told to fail"),
        ("boot_timeout", {"boot": "hang"}, r"idb_companion .*--boot .*: not done after 5 s"),
        ("boot_timeout", {"boot": "slow:600"}, "was not ready 5 s after its start; last it told: state Booting"),
        (None, {"start": "error"}, r"did not start: idb_companion ended \(exit status 1\): FBSimulatorError: told to fail"),
        (None, {"start": "garbage"}, r"did not start: idb_companion ended \(exit status 1\)"),
        ("timeout", {"start": "hang"}, "was not ready within 5 s"),
        ("timeout", {"connect": "hang"}, "was not ready within 5 s"),
        (None, {"connect": "die"}, r"did not start: idb_companion ended \(killed by signal 9\)"),
        ("boot_timeout", {"describe": "empty"}, "last it told: no screen size"),
        (None, {"describe": "die"}, r"description: idb_companion ended \(killed by signal 9\)"),
        ("boot_timeout", {"accessibility_info": "empty"}, "last it told: a screen without elements"),
        (None, {"screenshot": "small"}, "the screenshot has 320x200 pixels, but the screen 1170x2532"),
        (None, {"screenshot": "garbage"}, r"the simulator's screenshot is no picture \(13 bytes\)"),
        (None, {"launch": "error"}, "launch: the simulator says: launch was told to fail"),
    ],
    ids=lambda value: "-".join(f"{key}-{word}" for key, word in value.items()) if isinstance(value, dict) else ".",
)
async def test_an_episode_that_cannot_begin_ends_within_its_bounds_and_says_why(
    make: Callable[..., Ios], fakes: FakeSimulators, temporary: Path, bounded: str | None, faults: dict[str, str], message: str
) -> None:
    phone = make(**{bound: BOUND for bound in ("boot_timeout", "timeout") if bound == bounded})
    fakes.faults(**faults)
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=message):
        await phone.reset(TASK)
    assert time.monotonic() - began < 3 * BOUND + SLACK
    assert processes(fakes.folder) == []
    assert list(temporary.iterdir()) == []
    healthy = make()
    fakes.faults()
    seen = await healthy.reset(TASK)
    assert seen.text is not None and OFF in seen.text


async def test_a_simulator_that_takes_its_time_is_waited_for(make: Callable[..., Ios], fakes: FakeSimulators) -> None:
    fakes.faults(boot="slow:1.5", list="slow:0.2")
    began = time.monotonic()
    seen = await make().reset(TASK)
    assert seen.text is not None and OFF in seen.text
    assert time.monotonic() - began > 1.5


async def test_an_app_that_tells_no_elements_still_has_a_picture(make: Callable[..., Ios], fakes: FakeSimulators) -> None:
    phone = make()
    first = await phone.reset(TASK)
    [companion] = processes(fakes.folder)
    fakes.faults(accessibility_info=["error", "garbage"])
    assert await phone.step(Action("wait")) == (Observation(screenshot=first.screenshot), False)
    assert processes(fakes.folder) == [companion]
    with pytest.raises(EnvironmentFailure, match="accessibility tree cannot be read"):
        await phone.step(Action("wait"))


async def test_an_episode_that_runs_out_of_time_is_on_record_and_the_next_begins_clean(
    make: Callable[..., Ios], fakes: FakeSimulators
) -> None:
    script = (SWITCH, Action("stop"))
    phone = make()
    for faults in ({"hid": "hang"}, {"screenshot": "hang"}, {"boot": "hang"}, {"start": "hang"}, {"clone": "hang"}):
        fakes.faults(**faults)
        played = await rollout(ReplayPolicy(script), phone, TASK, id="one", timeout=3.0)
        assert (played.error, played.metadata) == ("the episode took more than 3 s", {"ended_by": "error"})
        fakes.faults()
        again = await rollout(ReplayPolicy(script), phone, TASK, id="two")
        assert (again.error, again.metadata) == (None, {"ended_by": "agent"})


async def test_a_copy_that_cannot_be_deleted_fails_the_next_start_and_is_deleted_later(
    make: Callable[..., Ios], fakes: FakeSimulators, temporary: Path
) -> None:
    phone = make()
    await phone.reset(TASK)
    fakes.faults(delete="error")
    with pytest.raises(EnvironmentFailure, match="--delete all: delete of all was told to fail"):
        await phone.reset(TASK)
    assert len(list(temporary.glob("prill-ios-*"))) == 1
    await begins_anew(phone, fakes)
    assert len(list(temporary.glob("prill-ios-*/copies/*.sim"))) == 1


KILLED = """
import asyncio, sys, tempfile
from pathlib import Path
from prill.emulators.ios import Ios
from prill.types import Task
companion, tempfile.tempdir, images = sys.argv[1:]
async def main():
    phone = Ios(Path(images), companion=companion)
    await phone.reset(Task(id="t", goal="g"))
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_what_a_killed_run_left_is_cleared_up_by_the_next(
    make: Callable[..., Ios], fakes: FakeSimulators, temporary: Path, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", KILLED, str(fakes.companion), str(temporary), str(tmp_path / "images")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as dead:
        assert dead.stdout is not None
        assert dead.stdout.readline() == "ready\n"
        living = make()
        await living.reset(TASK)
        assert len(list(temporary.glob("prill-ios-*"))) == 2, "what belongs to a run that lives is left alone"
        dead.kill()
    await living.close()
    phone = make()
    await phone.reset(TASK)
    assert len(list(temporary.glob("prill-ios-*"))) == 1
    async with asyncio.timeout(SLACK):
        while len(processes(fakes.folder)) > 1:
            await asyncio.sleep(0.1)


async def test_close_is_safe_at_any_time_and_twice(make: Callable[..., Ios], fakes: FakeSimulators) -> None:
    phone = make()
    await phone.close()
    await phone.reset(TASK)
    await asyncio.gather(phone.close(), phone.close())
    await phone.close()
    assert processes(fakes.folder) == []
    await begins_anew(phone, fakes)


def test_a_folder_is_taken_over_only_from_a_dead_owner(temporary: Path) -> None:
    mine = OwnFolder("prill-test-")
    assert abandoned("prill-test-") == [mine.path]
    with taken_over(mine.path) as taken:
        assert not taken
    mine.abandon()
    with taken_over(mine.path) as taken, taken_over(mine.path) as by_two:
        assert (taken, by_two) == (True, False)
    assert not (temporary / "none").exists()
    with taken_over(temporary / "none") as taken:
        assert not taken
    (mine.path / "lock").unlink()
    mine.path.rmdir()


def resources() -> Sequence[int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())


@pytest.mark.slow
async def test_fifty_episodes_in_a_row_leak_nothing(make: Callable[..., Ios], fakes: FakeSimulators, temporary: Path) -> None:
    for udid in fakes.udids:
        with fakes.change(udid) as simulator:
            simulator.density = 1
    phone = make()
    for number in range(50):
        seen = await phone.reset(TASK)
        assert seen.text is not None and OFF in seen.text
        await phone.step(SWITCH)
        assert len(processes(fakes.folder)) == 1
        if number == 4:
            early, objects = resources(), len(gc.get_objects())
    late = resources()
    assert late[0] <= early[0] + 2 and late[1] <= early[1] + 2 and late[2] == early[2]
    assert len(gc.get_objects()) < objects + 3000
    assert len(list(temporary.glob("prill-ios-*/copies/*.sim"))) == 1
    assert len(list(temporary.glob("prill-ios-*/*.sock"))) <= 1
