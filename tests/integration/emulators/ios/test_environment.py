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
from typing import Any

import pytest
from PIL import Image

from prill.emulators.ios.environment import Ios, IosSpec
from prill.emulators.ios.screen import combination, is_home_screen, read_elements
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool
from prill.emulators.widgets import Widget
from prill.episodes.loop import run_episode
from prill.errors import EnvironmentFailedError, UsageError
from prill.io.store import encode_trajectory
from prill.types import Action, Observation, Task
from tests.support.ios import FakeSimulators
from tests.support.ios.simulators import Simulator, new_udid
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


async def test_other_phones_have_other_points(
    make_ios: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    simulators.add(
        Simulator(udid=new_udid(), name="iPhone SE", width=320, height=568, density=2, booted=True)
    )
    phone = make_ios(simulator="iPhone SE", restore="none", location=None)
    seen = await phone.reset(TASK)
    await run(phone, Action("click", point=(0.5, 0.5)))
    assert simulators.events() == ["tap 160 284"]
    assert pixels(seen) == (640, 1136)


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


async def test_untypable_text_ends_the_episode(
    make_running: Callable[..., Ios], tmp_path: Path
) -> None:
    phone = make_running(simctl=str(tmp_path / "none"))
    await phone.reset(Task(id="t", goal="g", start_url=f"app:{MESSAGES}"))
    with pytest.raises(EnvironmentFailedError, match=r"'é'.*simctl is needed.*none does not start"):
        await phone.step(Action("type", target="3", value="é"))


async def test_back_and_home_press_home(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    for kind in ("back", "home"):
        await phone.reset(Task(id="t", goal="g", start_url=f"app:{SETTINGS}"))
        seen = await run(phone, Action(kind))
        assert seen.text is not None and seen.text.startswith("[1] Application ' '")
    assert simulators.events() == [f"launch {SETTINGS}", "button 1"] * 2


async def test_swipe_up_at_home_goes_right(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    await phone.reset(TASK)
    await run(phone, Action("swipe", value="left"), UP, UP, Action("click", target="[2]"), UP)
    right, up = "swipe 78 422 312 422", "swipe 195 422 195 168.8"
    assert simulators.events() == ["swipe 312 422 78 422", right, right, "tap 70 150", up]


async def test_random_swipe_follows_seed_and_task(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    async def ways(phone: Ios, task: Task) -> str:
        begun = len(simulators.events())
        await phone.reset(task)
        await run(phone, *[UP] * 8)
        return "".join(
            "r" if event == "swipe 78 422 312 422" else "l" for event in simulators.events()[begun:]
        )

    phone, other = (make_running(location=None, swipe_up="random", seed=seed) for seed in (1, 2))
    first = await ways(phone, TASK)
    assert set(first) == {"l", "r"}
    again = await ways(make_running(location=None, swipe_up="random", seed=1), TASK)
    assert first == again
    assert (
        len(
            {
                first,
                await ways(phone, TASK),
                await ways(other, TASK),
                await ways(phone, Task(id="u", goal="g")),
            }
        )
        == 4
    )


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


async def test_start_urls_open_apps_and_pages(
    make_running: Callable[..., Ios], simulators: FakeSimulators
) -> None:
    phone = make_running(location=None)
    page = await phone.reset(Task(id="t", goal="g", start_url="https://example.org/a"))
    assert page.text is not None and "StaticText 'https://example.org/a'" in page.text
    page = await run(phone, Action("goto", value="https://example.org/b"))
    assert page.text is not None and "StaticText 'https://example.org/b'" in page.text
    with pytest.raises(
        EnvironmentFailedError,
        match="launch: the simulator says: nothing on this phone opens com.example.none",
    ):
        await phone.reset(Task(id="t", goal="g", start_url="app:com.example.none"))
    with pytest.raises(UsageError, match="start_url 'Settings': expected app:<bundle id>"):
        await phone.reset(Task(id="t", goal="g", start_url="Settings"))


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"simulator": "iPhone 99"},
            r"there is no simulator 'iPhone 99'; simulators: iPhone 14 \(iOS 17.4, ",
        ),
        ({}, r"more than one simulator: give the UDID of one; simulators: iPhone 14 .*iPhone 15 "),
        (
            {"simulator": "iPhone 15"},
            r"iPhone 15 is Booted, but only a simulator that is shut down can be cloned",
        ),
    ],
)
async def test_unclear_simulator_is_a_usage_error(
    make_ios: Callable[..., Ios], simulators: FakeSimulators, options: dict[str, Any], message: str
) -> None:
    simulators.add(Simulator(udid=new_udid(), name="iPhone 15", booted=True))
    with pytest.raises(UsageError, match=message):
        await make_ios(**options).reset(TASK)


async def test_wrong_calls_say_what_to_do(
    make_ios: Callable[..., Ios], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="call reset first"):
        await make_ios().step(UP)
    with pytest.raises(UsageError, match="is not an executable file"):
        Ios(tmp_path, IosSpec(companion=str(tmp_path / "none")))
    monkeypatch.setenv("PRILL_IDB_COMPANION", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no idb_companion found; on a Mac run: brew install"):
        Ios(tmp_path)


async def test_ios_tools_are_listed(
    simulators: FakeSimulators, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRILL_IDB_COMPANION", str(simulators.companion))
    found = {tool.name: tool for tool in await ios_tools()}
    assert found["idb_companion"].found == f"{simulators.companion} (built Aug 12 2022)"
    assert found["simulators"].found == "iPhone 14 (iOS 17.4)"
    assert str(found["idb client"].found).startswith("fb-idb ")
    simulators.faults(list="error")
    assert {tool.name: tool.found for tool in await ios_tools()}["simulators"] is None
    monkeypatch.setenv("PRILL_IDB_COMPANION", str(tmp_path / "none"))
    missing = {tool.name: tool for tool in await ios_tools()}
    assert missing["idb_companion"].found is None and "brew install" in missing["idb_companion"].get


async def test_ios_26_pitfalls_are_told(
    simulators: FakeSimulators, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tools() -> dict[str, Tool]:
        return {tool.name: tool for tool in await ios_tools()}

    monkeypatch.setenv("PRILL_IDB_COMPANION", str(simulators.companion))
    monkeypatch.setenv("PATH", f"{simulators.folder}{os.pathsep}{os.environ['PATH']}")
    older = await tools()
    assert older["Xcode"].found == "Xcode 26.0.1, Build version 17A400" and older[
        "simctl"
    ].found == str(simulators.simctl)
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


@pytest.mark.parametrize(
    ("keys", "pressed"),
    [
        ("Enter", (40, [])),
        ("Control+a", (4, ["control"])),
        ("Meta+Shift+ArrowLeft", (80, ["command", "shift"])),
        ("A", (4, ["shift"])),
        ("?", (56, ["shift"])),
        ("+", (46, ["shift"])),
        ("Control++", (46, ["control", "shift"])),
        ("Control+", None),
        ("", None),
        ("Hyper+a", None),
        ("F99", None),
        ("é", None),
    ],
)
def test_key_names_become_usb_numbers(keys: str, pressed: tuple[int, list[str]] | None) -> None:
    assert combination(keys) == pressed


def test_flat_and_nested_trees_agree() -> None:
    def node(
        kind: str, label: str | None, box: tuple[float, ...], **more: object
    ) -> dict[str, object]:
        frame = dict(zip(("x", "y", "width", "height"), box, strict=True))
        return {"type": kind, "AXLabel": label, "AXValue": None, "frame": frame, **more}

    top = node("Application", "Safari", (0, 0, 400, 800))
    plain = node("Group", None, (0, 0, 400, 400))
    inner = node("Button", "Back\nto [1]", (100, 200, 200, 100), enabled=False, AXValue=3)
    outside = [node("Button", "below", (0, 800, 10, 10)), node("Button", "none", (5, 5, 0, 10))]
    flat = read_elements(json.dumps([top, plain, inner, *outside]), (400, 800))
    tree = {**top, "children": [{**plain, "children": [inner, *outside]}]}
    button = Widget(
        "Button",
        "Back\nto [1]",
        (0.25, 0.25, 0.75, 0.375),
        1,
        (("value", "'3'"), ("enabled", "false")),
    )
    assert read_elements(json.dumps(tree), (400, 800)) == [
        Widget("Application", "Safari", (0, 0, 1, 1)),
        button,
    ]
    assert [element.name for element in flat] == ["Safari", "Back\nto [1]"]
    assert not is_home_screen(flat) and not is_home_screen([])
