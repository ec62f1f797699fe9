"""The fake phones below the real Appium server, its UiAutomator2 driver and its Python client."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.support.android import FakeAdb

if TYPE_CHECKING:
    from appium.webdriver.webdriver import WebDriver

ONE, TWO = "emulator-5554", "emulator-5556"
SETTINGS, SEARCH, FIELD = (120, 300), (360, 300), (300, 266)
READ_TIMEOUT = 2.0
DEAD = "instrumentation process is not running"


@pytest.fixture
def two(appium: str, adb_ports: list[int]) -> Iterator[FakeAdb]:
    with FakeAdb((ONE, TWO)) as adb:
        adb_ports.append(adb.port)
        yield adb


@pytest.fixture
def session(appium: str, two: FakeAdb) -> Iterator[Callable[[str], WebDriver]]:
    """Starts Appium sessions, and ends those that the test left."""
    from appium import webdriver
    from appium.options.android import UiAutomator2Options
    from appium.webdriver.client_config import AppiumClientConfig
    from selenium.common.exceptions import WebDriverException

    open_now: list[WebDriver] = []

    def start(serial: str) -> WebDriver:
        capabilities = {
            "appium:udid": serial,
            "appium:adbPort": two.port,
            "appium:uiautomator2ServerReadTimeout": int(READ_TIMEOUT * 1000),
        }
        options = UiAutomator2Options().load_capabilities(capabilities)
        config = AppiumClientConfig(remote_server_addr=appium, timeout=60)
        open_now.append(webdriver.Remote(options=options, client_config=config))
        return open_now[-1]

    yield start
    two.fault("none")
    for driver in open_now:
        # the test has ended it already, or has broken what it runs on
        with contextlib.suppress(WebDriverException):
            driver.quit()


@pytest.fixture
def driver(session: Callable[[str], WebDriver]) -> WebDriver:
    return session(ONE)


def fails(action: Callable[[], object]) -> str:
    """What the client says of it."""
    from selenium.common.exceptions import WebDriverException

    with pytest.raises(WebDriverException) as caught:
        action()
    return str(caught.value.msg)


def until_it_fails_with(action: Callable[[], object], words: str) -> None:
    """Appium notices the end of an instrumentation when `am instrument` ends, a moment later."""
    end = time.monotonic() + 30
    while words not in fails(action) and time.monotonic() < end:
        time.sleep(0.05)
    assert words in fails(action)


def test_taps_and_keys_change_page_source(driver: WebDriver, two: FakeAdb) -> None:
    screen = two.phone(ONE).screen
    home = driver.get_screenshot_as_png()
    assert driver.get_window_size() == {"width": 720, "height": 1600}
    assert Image.open(io.BytesIO(home)).size == (720, 1600)
    driver.tap([SEARCH])
    assert screen.page == "search" and driver.get_screenshot_as_png() != home
    driver.swipe(*FIELD, *FIELD)
    driver.execute_script("mobile: shell", {"command": "input", "args": ["text", "red%sshoes"]})
    assert 'text="red shoes"' in driver.page_source
    driver.press_keycode(66)
    assert "Result 3 for red shoes" in driver.page_source
    driver.swipe(360, 1300, 360, 500, 200)
    assert "Result 14 for red shoes" in driver.page_source
    driver.back()
    assert screen.page == "search"
    driver.press_keycode(3)
    assert screen.page == "home"
    driver.execute_script(
        "mobile: swipeGesture",
        {"left": 100, "top": 400, "width": 400, "height": 900, "direction": "up", "percent": 0.8},
    )
    assert screen.page == "drawer"


def test_any_text_typed_in_three_ways(driver: WebDriver, two: FakeAdb) -> None:
    texts = two.phone(ONE).screen.texts
    driver.tap([SEARCH])
    assert "could not be located" in fails(lambda: driver.switch_to.active_element), (
        "nothing has the focus"
    )
    driver.tap([FIELD])
    driver.switch_to.active_element.send_keys("größe ")
    driver.execute_script("mobile: type", {"text": "日本 & 😀"})
    driver.set_clipboard_text(" ñandú")
    driver.press_keycode(279)
    assert texts["query"] == "größe 日本 & 😀 ñandú"
    assert driver.get_clipboard_text() == " ñandú"
    assert two.phone(ONE).ime == "com.android.inputmethod.latin/.LatinIME", (
        "the driver puts the input method back"
    )
    driver.press_keycode(29, 0x1000)
    driver.press_keycode(67)
    assert texts["query"] == ""
    assert "NullPointerException" in fails(
        lambda: driver.execute_script(
            "mobile: shell", {"command": "input", "args": ["text", "größe"]}
        )
    )
    assert texts["query"] == ""


def test_two_phones_share_no_session(
    driver: WebDriver, session: Callable[[str], WebDriver], two: FakeAdb
) -> None:
    other = session(TWO)
    driver.tap([SETTINGS])
    other.tap([SEARCH])
    assert "Bluetooth" in driver.page_source and "Bluetooth" not in other.page_source
    assert (two.phone(ONE).screen.page, two.phone(TWO).screen.page) == ("settings", "search")


def test_quitting_frees_the_port(driver: WebDriver, two: FakeAdb) -> None:
    from selenium.common.exceptions import InvalidSessionIdException

    assert two.phone(ONE).running and two.server.forwards
    driver.quit()
    assert "io.appium.uiautomator2.server" not in two.phone(ONE).running
    assert not two.server.forwards
    with pytest.raises(InvalidSessionIdException):
        driver.get_screenshot_as_base64()


def test_open_session_blocks_adb_dump(driver: WebDriver, adb_path: str, two: FakeAdb) -> None:
    command = [adb_path, "-P", str(two.port), "-s", ONE, "shell", "uiautomator dump"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 137


@pytest.mark.parametrize("fault", ["hang", "freeze"])
def test_hanging_screenshot_times_out(driver: WebDriver, two: FakeAdb, fault: str) -> None:
    two.fault(fault, ONE)
    start = time.monotonic()
    assert "timeout of 2000ms exceeded" in fails(driver.get_screenshot_as_base64)
    assert time.monotonic() - start >= READ_TIMEOUT
    two.fault("none", ONE)
    assert base64.b64decode(driver.get_screenshot_as_base64()).startswith(b"\x89PNG")


@pytest.mark.parametrize("fault", ["crash", "crash-always"])
def test_crashed_instrumentation_stays_dead(
    driver: WebDriver, session: Callable[[str], WebDriver], two: FakeAdb, fault: str
) -> None:
    two.fault(fault, ONE)
    # Appium may have seen already that the process ended
    assert re.search(f"socket hang up|{DEAD}", fails(driver.get_screenshot_as_base64))
    until_it_fails_with(driver.get_screenshot_as_base64, DEAD)
    driver.quit()
    again = session(ONE)
    if fault == "crash":
        assert again.get_screenshot_as_base64()
    else:
        assert "socket hang up" in fails(again.get_screenshot_as_base64)


@pytest.mark.parametrize("fault", ["lost", "offline"])
def test_gone_phone_ends_the_session(
    driver: WebDriver, session: Callable[[str], WebDriver], two: FakeAdb, fault: str
) -> None:
    two.fault(fault, ONE)
    # Appium may have seen already that the process ended
    assert re.search(f"socket hang up|{DEAD}", fails(driver.get_screenshot_as_base64))
    until_it_fails_with(driver.get_screenshot_as_base64, DEAD)
    fails(driver.quit)
    assert "not in the list of connected devices" in fails(lambda: session(ONE))
    assert session(TWO).get_screenshot_as_base64()


def test_unbooted_phone_gets_no_session(session: Callable[[str], WebDriver], two: FakeAdb) -> None:
    two.fault("never-boots", ONE)
    assert "Can't find service" in fails(lambda: session(ONE))
