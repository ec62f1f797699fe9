"""The Android environment on a fake phone, below the real adb server's protocol and the real Appium
with UiAutomator2.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import subprocess
import sys
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
from prill.emulators.screenshots import same_screen
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.io.store import read_trajectories
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.android import FakeAdb
from tests.support.android.phone import Phone as FakePhone
from tests.support.paths import ROOT

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


async def test_keys_go_by_name_others_do_nothing(environment: Android, fake: FakePhone) -> None:
    screen = fake.screen
    await environment.reset(SEARCH)
    await do(
        environment,
        Action("type", target="[2] textbox", value="abc"),
        Action("press", value="Backspace"),
    )
    assert screen.texts["query"] == "ab"
    nothing = (
        Action("press", value="Hyper+q"),
        Action("other", text="gibberish"),
        Action("goto", value="http://example.com"),
        Action("click", target="[99]"),
        Action("click"),
        Action("wait"),
        Action("type", value="\x07\x1b"),
    )
    await do(environment, *nothing)
    assert (screen.page, screen.texts["query"]) == ("search", "ab")
    await do(environment, Action("press", value="KEYCODE_ENTER"))
    assert screen.page == "results"
    await do(environment, Action("back"))
    assert screen.page == "search"
    await do(environment, Action("home"))
    assert screen.page == "home"


async def test_text_without_a_field_is_lost(environment: Android, fake: FakePhone) -> None:
    if isinstance(environment._phone, AppiumPhone):
        pytest.skip("Appium knows what has the focus, and says so")
    await environment.reset(SEARCH)
    await do(environment, Action("type", value="lost"), Action("type", value="perdu é"))
    assert fake.screen.texts["query"] == ""


async def test_appium_tells_that_no_field_has_focus(environment: Android, fake: FakePhone) -> None:
    if not isinstance(environment._phone, AppiumPhone):
        pytest.skip("adb does not know what has the focus")
    await environment.reset(SEARCH)
    with pytest.raises(EnvironmentFailedError, match="no field has the focus"):
        await do(environment, Action("type", value="lost"))
    assert fake.screen.texts["query"] == ""
    await environment.reset(SEARCH)  # the session is as good as before


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


async def test_long_press_is_no_tap(over_adb: Android, fake_adb: FakeAdb) -> None:
    await over_adb.reset(SETTINGS)
    before = dict(fake_adb.phone().screen.toggles)
    await do(over_adb, Action("long_press", point=(0.5, 0.25)))
    width, height = fake_adb.phone().screen.size
    assert fake_adb.phone().screen.held == pytest.approx((width / 2, height / 4), abs=1)
    assert fake_adb.phone().screen.toggles == before


async def test_observed_screen_is_settled(over_adb: Android, fake_adb: FakeAdb) -> None:
    fake_adb.phone().frames = 5
    seen = await over_adb.reset(SETTINGS)
    assert seen.screenshot is not None
    with (
        Image.open(seen.screenshot) as shot,
        Image.open(io.BytesIO(fake_adb.phone().screenshot())) as still,
    ):
        assert shot.convert("RGB").tobytes() == still.convert("RGB").tobytes()


async def test_restless_screen_is_looked_at_anyway(
    phone: Phone, fake_adb: FakeAdb, tmp_path: Path
) -> None:
    environment = Android(tmp_path, AndroidSpec(settle_gap=0.0, settle_timeout=0.3), phone=phone)
    fake_adb.fault("restless")
    seen = await environment.reset(SETTINGS)
    await environment.close()
    assert seen.screenshot is not None
    # Plain adb cannot read the tree of a moving screen; Appium can.
    assert seen.text is None or "Wi-Fi" in seen.text
    assert (seen.text is None) == isinstance(phone, AdbPhone)


def picture(*boxes: tuple[int, int, int, int], size: tuple[int, int] = (1080, 2280)) -> bytes:
    image = Image.new("RGB", size, "white")
    for box in boxes:
        ImageDraw.Draw(image).rectangle(box, fill="black")
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


@pytest.mark.parametrize(
    ("box", "same"),
    [
        ((30, 20, 150, 60), True),  # the clock
        ((300, 900, 304, 965), True),  # a blinking cursor
        ((400, 1000, 530, 1130), False),  # a spinner
        ((0, 500, 1079, 520), False),  # a progress bar
    ],
)
def test_clock_and_cursor_are_no_movement(box: tuple[int, int, int, int], same: bool) -> None:
    assert same_screen(picture(), picture(box)) is same
    assert not same_screen(picture(), picture(size=(2280, 1080)))


async def test_input_method_is_put_back(fake_adb: FakeAdb, over_adb: Android) -> None:
    fake_adb.phone().adb_keyboard = True
    before = fake_adb.phone().ime
    await over_adb.reset(SEARCH)
    await do(over_adb, Action("type", target="2", value="50% 'Öl' 日本"))
    assert fake_adb.phone().screen.texts["query"] == "50% 'Öl' 日本"
    assert fake_adb.phone().ime == before


async def test_untypable_text_names_the_keyboard(fake_adb: FakeAdb, over_adb: Android) -> None:
    fake_adb.phone().adb_keyboard = False
    await over_adb.reset(SEARCH)
    with pytest.raises(EnvironmentFailedError, match="'é' cannot be typed.*ADBKeyboard.apk"):
        await over_adb.step(Action("type", target="2", value="é"))


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


async def test_app_is_opened_by_its_package(over_adb: Android, fake_adb: FakeAdb) -> None:
    await over_adb.reset(Task(goal="notes", start_url="app:com.example.notes"))
    assert fake_adb.phone().screen.page == "notes"
    with pytest.raises(EnvironmentFailedError, match="com.example.none cannot be opened"):
        await over_adb.reset(Task(goal="no", start_url="app:com.example.none"))


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


async def test_turned_phone_is_touched_as_pictured(over_adb: Android, fake_adb: FakeAdb) -> None:
    screen = fake_adb.phone().screen
    await over_adb.reset(HOME)
    screen.size = (1600, 720)
    seen = await do(over_adb, Action("wait"))
    assert size(seen) == (1600, 720)
    await do(over_adb, Action("click", point=(0.5, 0.4)))
    assert screen.page == "search"


async def test_new_resolution_is_noticed(over_adb: Android, fake_adb: FakeAdb) -> None:
    await over_adb.reset(HOME)
    fake_adb.phone().screen.size = (360, 800)
    seen = await do(over_adb, Action("wait"))
    assert size(seen) == (360, 800)


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


async def test_field_has_focus_before_typing(over_adb: Android, fake_adb: FakeAdb) -> None:
    """A real phone moves the focus a moment after the touch; what comes earlier is lost."""
    await over_adb.reset(SEARCH)
    fake_adb.phone().shells.clear()
    await do(over_adb, Action("type", point=(0.5, 0.2), value="x"))
    said = [line.split()[:2] for line in fake_adb.phone().shells]
    assert said[:2] == [["input", "tap"], ["screencap", "-p"]]
    assert ["input", "text"] in said[2:]


async def test_step_comes_after_a_reset(over_adb: Android) -> None:
    with pytest.raises(UsageError, match="call reset first"):
        await over_adb.step(Action("home"))
    await over_adb.reset(HOME)
    await over_adb.close()
    await over_adb.close()
    with pytest.raises(UsageError, match="call reset first"):
        await over_adb.step(Action("home"))


def test_android_example_runs(fake_adb: FakeAdb, tmp_path: Path) -> None:
    example = ROOT / "examples" / "android_episode.py"
    done = subprocess.run(
        [sys.executable, example, tmp_path, "emulator-5554"],
        env={**os.environ, "ANDROID_ADB_SERVER_PORT": str(fake_adb.port)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith("[1] text 'Settings' -> scroll down")
    assert lines[-1] == f"written to {tmp_path / 'trajectories.jsonl'}"
    [recorded] = read_trajectories(tmp_path / "trajectories.jsonl")
    assert isinstance(recorded, Trajectory) and len(recorded.steps) == 4


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
