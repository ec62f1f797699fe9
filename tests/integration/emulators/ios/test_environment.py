"""The iOS environment over the real fb-idb client, on fake simulators: what arrives there, and what
agents see.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from prill.emulators.ios.environment import Ios
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool
from prill.episodes.loop import run_episode
from prill.io.store import encode_trajectory
from prill.types import Action, Observation, Task
from tests.support.ios import FakeSimulators
from tests.support.policies.replay import ReplayPolicy

if importlib.util.find_spec("idb") is None:
    pytest.skip("fb-idb is not installed: pip install '.[ios]'", allow_module_level=True)

SETTINGS, SAFARI, MESSAGES = (
    "com.apple.Preferences",
    "com.apple.mobilesafari",
    "com.apple.MobileSMS",
)
TASK = Task(id="t", goal="turn on the VPN", platform="ios")
UP = Action("swipe", value="up")


async def run(phone: Ios, *actions: Action) -> Observation:
    for action in actions:
        seen, done = await phone.step(action)
        assert not done
    return seen


def pixels(seen: Observation) -> tuple[int, int]:
    assert seen.screenshot is not None
    with Image.open(seen.screenshot) as picture:
        return picture.size


async def test_episode_begins_on_a_booted_copy(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    with simulators.change(simulators.udids[0]) as prepared:
        prepared.density = 3
    seen = await make_ios().reset(TASK)
    assert pixels(seen) == (1170, 2532)
    assert (
        seen.text
        == "[1] Application ' '\n\t[2] Button 'Settings'\n\t[3] Button 'Safari'\n\t[4] Slider '' "
        "value: 'page 1 of 2'"
    )
    assert simulators.events() == ["location 40.7128 -74.006"]
    assert [one.state for one in simulators.all()] == ["Shutdown"], (
        "the prepared simulator itself is never started"
    )


async def test_fractions_arrive_in_points(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    await phone.reset(TASK)
    await run(
        phone,
        Action("click", point=(0.5, 0.5)),
        Action("click", point=(1.0, 1.0)),
        Action("click", point=(0.0, 0.0)),
        Action("swipe", value="left"),
        Action("swipe", point=(0.5, 0.75), end_point=(0.5, 0.25)),
        Action("scroll", value="down"),
        Action("click", point=(0.5, 0.5), end_point=(0.5, 0.52)),
    )
    assert simulators.events() == [
        "tap 195 422",
        "tap 389 843",
        "tap 0 0",
        "swipe 312 422 78 422",
        "swipe 195 633 195 211",
        "swipe 195 422 195 168.8",
        "tap 195 422",
    ]


async def test_elements_are_named_by_their_lines(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    first = await phone.reset(TASK)
    nothing = await run(
        phone,
        Action("click", target="[9] Button 'None'"),
        Action("click", target="Settings"),
        Action("type", target="77", value="x"),
        Action("press", value="NoSuchKey"),
        Action("goto", value="nonsense"),
        Action("select", target="[2]", value="x"),
        Action("forward"),
        Action("new_tab"),
        Action("hover", target="[2]"),
        Action("other", text="gibberish"),
        Action("wait"),
        Action("swipe", value="sideways"),
        Action("click"),
    )
    assert nothing == first
    assert [event for event in simulators.events() if not event.startswith("open_url")] == []
    inside = await run(phone, Action("click", target="[2] Button 'Settings'"))
    assert inside.text is not None and "[8] CheckBox 'VPN' value: '0'" in inside.text
    switched = await run(phone, Action("click", target="8"))
    assert switched.text is not None and "[8] CheckBox 'VPN' value: '1'" in switched.text
    assert switched.screenshot != inside.screenshot


async def test_text_goes_to_the_field(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    await phone.reset(Task(id="t", goal="g", start_url=f"app:{MESSAGES}"))
    seen = await run(
        phone,
        Action("type", target="[3] TextField 'iMessage'", value='Hi, "Bob" & co. (50%)~'),
        Action("press", value="Enter"),
        Action("type", target="3", value="second\n"),
        Action("type", target="3", value="third!"),
        Action("press", value="Backspace"),
        Action("press", value="Shift+a"),
        Action("click", target="[4]"),
    )
    assert seen.text is not None
    lines = [
        line.partition("StaticText ")[2] for line in seen.text.splitlines() if "StaticText" in line
    ]
    assert lines == ["'Hi, \"Bob\" & co. (50%)~'", "'second'", "'thirdA'"]
    assert simulators.events().count("key 40") == 2


async def test_text_beyond_us_keys_is_pasted(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_ios(location=None)
    await phone.reset(Task(id="t", goal="g", start_url=f"app:{MESSAGES}"))
    seen = await run(phone, Action("type", target="3", value="Grüße, 你好 🎉\n"))
    assert seen.text is not None and "StaticText 'Grüße, 你好 🎉'" in seen.text
    assert "key 227+25" in simulators.events()


async def test_swipe_up_at_home_goes_right(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    await phone.reset(TASK)
    await run(phone, Action("swipe", value="left"), UP, UP, Action("click", target="[2]"), UP)
    right, up = "swipe 78 422 312 422", "swipe 195 422 195 168.8"
    assert simulators.events() == ["swipe 312 422 78 422", right, right, "tap 70 150", up]


async def test_clone_keeps_the_original_untouched(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    with simulators.change(simulators.udids[0]) as prepared:
        prepared.on = ["VPN"]
    before = simulators.read(simulators.udids[0])
    phone, task = make_ios(), Task(id="t", goal="g", start_url=f"app:{SETTINGS}")
    first = await phone.reset(task)
    assert first.text is not None and "'VPN' value: '1'" in first.text
    changed = await run(phone, Action("click", target="[8]"))
    assert changed.text is not None and "'VPN' value: '0'" in changed.text
    assert await phone.reset(task) == first
    assert simulators.read(simulators.udids[0]) == before


async def test_erase_starts_again_none_goes_on(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    with simulators.change(simulators.udids[0]) as prepared:
        prepared.on = ["VPN"]
    task = Task(id="t", goal="g", start_url=f"app:{SETTINGS}")
    kept = make_ios(restore="none")
    seen = await kept.reset(task)
    assert seen.text is not None and "'VPN' value: '1'" in seen.text
    await run(kept, Action("click", target="[3]"))
    seen = await kept.reset(task)
    assert seen.text is not None and "'Airplane Mode' value: '1'" in seen.text
    await kept.close()
    assert simulators.read(simulators.udids[0]).state == "Shutdown", (
        "what was started is turned off"
    )
    erased = make_ios(restore="erase")
    seen = await erased.reset(task)
    assert (
        seen.text is not None
        and "'VPN' value: '0'" in seen.text
        and "'Airplane Mode' value: '0'" in seen.text
    )


async def test_two_simulators_do_not_interfere(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    one, two = make_ios(location=None), make_ios(location=None)
    await asyncio.gather(one.reset(TASK), two.reset(TASK))
    tap = Action("click", target="[2]")
    first, second = await asyncio.gather(
        run(one, tap, tap), run(two, Action("swipe", value="left"), tap)
    )
    assert first.text is not None and first.text.startswith("[1] Application 'Settings'")
    assert second.text is not None and second.text.startswith("[1] Application 'Messages'")
    assert len({line.split()[0] for line in simulators.log()}) == 2, (
        "two copies of the one prepared simulator"
    )


async def test_loop_records_an_ios_episode(
    make_running: Callable[..., Ios], tmp_path: Path
) -> None:
    actions = [
        Action("click", "tap Settings", target="[2]"),
        Action("click", "tap VPN", target="[8]"),
        Action("stop", "done"),
    ]
    played = await run_episode(ReplayPolicy(actions), make_running(), TASK, id="one", max_steps=10)
    assert (played.error, len(played.steps), played.metadata) == (
        None,
        3,
        {"date": played.metadata["date"], "ended_by": "agent"},
    )
    assert (
        played.final is not None
        and played.final.text is not None
        and "'VPN' value: '1'" in played.final.text
    )
    assert json.loads(encode_trajectory(played, tmp_path))["task"]["platform"] == "ios"


async def test_ios_26_pitfalls_are_told(
    simulators: FakeSimulators, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tools() -> dict[str, Tool]:
        return {tool.name: tool for tool in await ios_tools()}

    monkeypatch.setenv("PRILL_IDB_COMPANION", str(simulators.companion))
    monkeypatch.setenv("PATH", f"{simulators.folder}{os.pathsep}{os.environ['PATH']}")
    older = await tools()
    assert older["simctl"].found == str(simulators.simctl)
    assert not {"accessibility", "taps in points"} & older.keys(), (
        "before iOS 26 there is nothing to tell"
    )
    with simulators.change(simulators.udids[0]) as simulator:
        simulator.os_version, simulator.accessibility = "iOS 26.1", False
    off = await tools()
    assert (
        off["accessibility"].found is None
        and off["accessibility"].lacking == "not known of iPhone 14 (only a booted one tells)"
    )
    assert off["taps in points"].found is None and "facebook/idb#964" in off["taps in points"].get
    with simulators.change(simulators.udids[0]) as simulator:
        simulator.boot()
    booted = (await tools())["accessibility"]
    assert (
        booted.found is None
        and booted.lacking == "off on iPhone 14"
        and "ApplicationAccessibilityEnabled" in booted.get
    )
    with simulators.change(simulators.udids[0]) as simulator:
        simulator.accessibility = True
    assert (await tools())["accessibility"].found == "on: iPhone 14"
