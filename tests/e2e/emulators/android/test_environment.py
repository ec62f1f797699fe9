"""The Android environment on a fake phone, below the real adb server's protocol and the real Appium
with UiAutomator2.
"""

from __future__ import annotations

import asyncio
import gc
import io
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from prill.emulators.android.adb import AdbPhone
from prill.emulators.android.appium import AppiumPhone
from prill.emulators.android.environment import Android, AndroidSpec
from prill.emulators.android.phone import Phone
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Observation, Step, Task
from tests.support.android import FakeAdb
from tests.support.android.phone import Phone as FakePhone

SEARCH = Task(goal="search", start_url="app:com.example.search/.SearchActivity")
SETTINGS = Task(goal="settings", start_url="app:com.android.settings/.Settings")
HOME = Task(goal="anything")
AWKWARD = (
    "a b  c",
    'it\'s "quoted"',
    "$HOME `id` $(id)",
    "a & b; c | d > e < f",
    "100%s % s %%s 5%",
    "back\\slash #~*?[]{}()!",
    "-5 --x",
)


@pytest.fixture(params=["adb", "appium"])
def phone(request: pytest.FixtureRequest, fake_adb: FakeAdb) -> Phone:
    """Each backend in turn, on the same fake phone."""
    if request.param == "adb":
        return AdbPhone(fake_adb.port)
    return AppiumPhone(request.getfixturevalue("appium"), adb_port=fake_adb.port)


@pytest.fixture
async def over_adb(fake_adb: FakeAdb, tmp_path: Path) -> AsyncIterator[Android]:
    """The quick backend alone, for what the environment itself does."""
    android = Android(
        tmp_path, AndroidSpec(settle_gap=0.0, idle=0.0), phone=AdbPhone(fake_adb.port)
    )
    yield android
    await android.close()


@pytest.fixture(scope="module", params=["adb", "appium"])
def stand(
    request: pytest.FixtureRequest,
    adb_path: str,
    adb_ports: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[FakeAdb, Android]]:
    """Each backend in turn, with one session for all tests that are not about sessions."""
    with FakeAdb(("emulator-5560",), adb_keyboard=True) as adb:
        adb_ports.append(adb.port)
        phone: Phone = AdbPhone(adb.port)
        if request.param == "appium":
            phone = AppiumPhone(request.getfixturevalue("appium"), adb_port=adb.port)
        environment = Android(
            tmp_path_factory.mktemp("images"), AndroidSpec(settle_gap=0.0, idle=0.0), phone=phone
        )
        yield adb, environment
        asyncio.run(environment.close())


@pytest.fixture
def environment(stand: tuple[FakeAdb, Android]) -> Android:
    adb, environment = stand
    adb.reset()
    return environment


@pytest.fixture
def fake(stand: tuple[FakeAdb, Android]) -> FakePhone:
    """The phone of `environment`."""
    return stand[0].phone()


def size(observation: Observation) -> tuple[int, int]:
    assert observation.screenshot is not None
    with Image.open(observation.screenshot) as picture:
        return picture.size


async def do(environment: Android, *actions: Action) -> Observation:
    for action in actions:
        observation, done = await environment.step(action)
        assert not done
    return observation


async def test_episode_on_either_backend(environment: Android, fake: FakePhone) -> None:
    class Searcher:
        def reset(self, task: Task) -> None:
            self.actions = [
                Action("click", target="[2]"),
                Action("type", value="größe 日本 🙂\n"),
                Action("stop"),
            ]

        async def act(self, observation: Observation) -> Step:
            return Step(observation, self.actions.pop(0))

    trajectory = await run_episode(Searcher(), environment, SEARCH, id="one")
    assert (trajectory.error, trajectory.metadata["ended_by"]) == (None, "agent")
    first, typed, last, _ = trajectory.observations
    assert first.text == "[1] text 'Search'\n[2] textbox 'Search or type a web address'"
    assert typed.text is not None and "focused: true" in typed.text
    assert last.text is not None and "[3] button 'Result 1 for größe 日本 🙂'" in last.text.replace(
        "\t", ""
    )
    for state in (first, typed, last):
        assert size(state) == (720, 1600)
    assert fake.screen.page == "results"


async def test_every_sign_arrives_as_typed(environment: Android, fake: FakePhone) -> None:
    screen = fake.screen
    await environment.reset(SEARCH)
    for text in AWKWARD:
        screen.texts["query"] = ""
        await do(environment, Action("type", target="2", value=text))
        assert screen.texts["query"] == text


async def test_short_touch_taps_long_one_swipes(environment: Android, fake: FakePhone) -> None:
    screen = fake.screen
    await environment.reset(SETTINGS)
    await do(environment, Action("swipe", point=(0.5, 0.25), end_point=(0.5, 0.21)))
    assert [name for name, on in screen.toggles.items() if on] == ["Wi-Fi", "Bluetooth", "Location"]
    assert screen.offset == 0
    await do(environment, Action("swipe", point=(0.5, 0.5), end_point=(0.5, 0.5 - 0.09)))
    assert screen.offset == 1
    down = await do(environment, Action("scroll", value="down", target="[4]"))
    assert screen.offset > 1
    assert down.text is not None and "Wi-Fi" not in down.text
    await do(
        environment, Action("swipe", value="down"), Action("scroll", value="up", point=(0.5, 0.01))
    )
    assert screen.offset == 0


async def test_observed_screen_is_settled(over_adb: Android, fake_adb: FakeAdb) -> None:
    fake_adb.phone().frames = 5
    seen = await over_adb.reset(SETTINGS)
    assert seen.screenshot is not None
    with (
        Image.open(seen.screenshot) as shot,
        Image.open(io.BytesIO(fake_adb.phone().screenshot())) as still,
    ):
        assert shot.convert("RGB").tobytes() == still.convert("RGB").tobytes()


def picture(*boxes: tuple[int, int, int, int], size: tuple[int, int] = (1080, 2280)) -> bytes:
    image = Image.new("RGB", size, "white")
    for box in boxes:
        ImageDraw.Draw(image).rectangle(box, fill="black")
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


async def test_task_starts_where_it_says(environment: Android, fake: FakePhone) -> None:
    screen = fake.screen
    await environment.reset(SETTINGS)
    assert screen.page == "settings"
    await environment.reset(HOME)
    assert screen.page == "home"
    await environment.reset(Task(goal="read", start_url="https://example.com/?a=1&b='2'$HOME"))
    assert (
        screen.address.replace("%27", "'").replace("%24", "$")
        == "https://example.com/?a=1&b='2'$HOME"
    )
    with pytest.raises(EnvironmentFailedError, match="com.example.none.*cannot be opened"):
        await environment.reset(Task(goal="no", start_url="app:com.example.none/.Main"))
    with pytest.raises(UsageError, match="start_url 'miniwob/x': expected app:"):
        await environment.reset(Task(goal="no", start_url="miniwob/x"))
    await environment.reset(SETTINGS)
    assert screen.page == "settings"


async def test_commands_prepare_each_episode(
    phone: Phone, fake_adb: FakeAdb, tmp_path: Path
) -> None:
    environment = Android(
        tmp_path, AndroidSpec(settle_gap=0.0, prepare=("pm clear com.example.notes",)), phone=phone
    )
    for _ in range(2):
        fake_adb.phone().screen.notes.append("left over")
        await environment.reset(HOME)
        assert fake_adb.phone().screen.notes == []
    await environment.close()
    broken = Android(
        tmp_path, AndroidSpec(settle_gap=0.0, prepare=("no-such-program",)), phone=phone
    )
    with pytest.raises(EnvironmentFailedError, match="`no-such-program` failed on the phone"):
        await broken.reset(HOME)
    await broken.close()


@pytest.mark.parametrize("backend", ["adb", "appium"])
async def test_several_phones_are_told_apart(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    adb_path: str,
    adb_ports: list[int],
    backend: str,
) -> None:
    def phone() -> Phone:
        if backend == "adb":
            return AdbPhone(adb.port)
        return AppiumPhone(request.getfixturevalue("appium"), adb_port=adb.port)

    with FakeAdb(("emulator-5562", "emulator-5564"), size=(360, 800), frames=0) as adb:
        adb_ports.append(adb.port)
        one, other = (
            Android(tmp_path, AndroidSpec(device=f"emulator-556{n}", settle_gap=0.0), phone=phone())
            for n in (2, 4)
        )
        await asyncio.gather(one.reset(SETTINGS), other.reset(SEARCH))
        await asyncio.gather(
            do(one, Action("back")), do(other, Action("type", target="2", value="x\n"))
        )
        assert [phone.screen.page for phone in adb.phones] == ["home", "results"]
        nameless = Android(tmp_path, phone=phone())
        with pytest.raises(UsageError, match="choose one: emulator-5562, emulator-5564"):
            await nameless.reset(HOME)
        for environment in (one, other, nameless):
            await environment.close()


def held() -> tuple[int, set[str]]:
    """Open files of this process, and its threads."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())), {
        thread.name for thread in threading.enumerate()
    }


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to count open files")
@pytest.mark.parametrize(("backend", "episodes"), [("adb", 50), ("appium", 4)])
async def test_many_episodes_leave_nothing(
    request: pytest.FixtureRequest,
    adb_path: str,
    adb_ports: list[int],
    tmp_path: Path,
    backend: str,
    episodes: int,
) -> None:
    with FakeAdb(("emulator-5566",), size=(180, 400), frames=0) as adb:
        adb_ports.append(adb.port)

        async def play(times: int) -> None:
            for _ in range(times):
                phone: Phone = AdbPhone(adb.port)
                if backend == "appium":
                    phone = AppiumPhone(request.getfixturevalue("appium"), adb_port=adb.port)
                environment = Android(tmp_path, AndroidSpec(settle_gap=0.0), phone=phone)
                await environment.reset(SEARCH)
                await do(environment, Action("type", target="2", value="x"))
                await environment.close()
            adb.phone().shells.clear()

        await play(1)
        before = held()
        tracemalloc.start()
        try:
            await play(1)
            small, _ = tracemalloc.get_traced_memory()
            await play(episodes)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - small
        finally:
            tracemalloc.stop()
        assert grown < 2_000_000
        files, threads = held()
        # The fake's own connections may be closing at either moment.
        assert files <= before[0] + 4
        assert {name for name in threads if not name.startswith("asyncio_")} <= before[1]
