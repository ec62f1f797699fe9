"""The Appium backend for Android: Appium 3 with UiAutomator2, through Appium's Python client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from prill.emulators.android.adb import AdbServer, sdk_program
from prill.emulators.android.phone import PhoneLostError, Start, whole_png
from prill.emulators.screenshots import Size
from prill.errors import EnvironmentFailedError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from appium.webdriver.webdriver import WebDriver


T = TypeVar("T")
# The server's messages for commands that cannot have reached the phone.
_NOT_SENT = (
    "instrumentation process is not running",
    "session is either terminated or not started",
    "A session is either",
    "ECONNREFUSED",
)
# The client waits longer than the driver, so that it gets the driver's error; see
# `uiautomator2ServerReadTimeout`.
LONGER = 5.0


class AppiumSession:
    """A session on the server at `url`, with its own thread, so that a call that hangs does not
    block other phones.

    `timeout` in seconds limits each call; `local` is True for a server on this machine. Raises
    PhoneLostError.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self.local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prill-appium")
        self._driver: WebDriver | None = None

    async def start(self, capabilities: dict[str, Any], timeout: float) -> None:
        """Starts the session within `timeout` seconds."""
        await self._run("session", lambda: self._open(capabilities, timeout), timeout)

    async def do(self, what: str, do: Callable[[WebDriver], T]) -> T:
        """Calls the driver; `what` names the call in messages."""
        driver = self._driver
        if driver is None:
            raise UsageError("the session was not started")
        return await self._run(what, lambda: do(driver), self._timeout)

    async def end(self) -> None:
        """Ends the session within the time limit."""
        # Queued behind a call that hangs, so that a session that starts late is ended as well.
        last = self._thread.submit(self._quit)
        self._thread.shutdown(wait=False)
        await asyncio.wait([asyncio.wrap_future(last)], timeout=self._timeout)

    async def _run(self, what: str, do: Callable[[], T], timeout: float) -> T:
        try:
            from selenium.common.exceptions import InvalidSessionIdException, WebDriverException
            from urllib3.exceptions import HTTPError, NewConnectionError
        except ImportError:
            raise MissingExtraError("Appium-Python-Client", "android") from None

        try:
            async with asyncio.timeout(timeout + LONGER):
                return await asyncio.get_running_loop().run_in_executor(self._thread, do)
        except TimeoutError:
            raise PhoneLostError(
                f"the {what} was not received within {timeout:g} s", sent=True
            ) from None
        except NewConnectionError:
            raise PhoneLostError(
                f"no Appium server responds at {self._url} (start one with: appium server)",
                sent=False,
            ) from None
        except (HTTPError, OSError) as error:
            raise PhoneLostError(
                f"the {what} was interrupted: "
                f"{first_line(str(error.args[-1] if error.args else error))}",
                sent=True,
            ) from None
        except WebDriverException as error:
            message = error.msg or type(error).__name__
            sent = not (
                isinstance(error, InvalidSessionIdException)
                or any(text in message for text in _NOT_SENT)
            )
            raise PhoneLostError(f"the {what} failed: {first_line(message)}", sent=sent) from None

    def _open(self, capabilities: dict[str, Any], timeout: float) -> None:
        try:
            from appium.options.common import AppiumOptions
            from appium.webdriver.appium_connection import AppiumConnection
            from appium.webdriver.client_config import AppiumClientConfig
            from appium.webdriver.webdriver import WebDriver
            from selenium.webdriver.common.proxy import Proxy
            from selenium.webdriver.remote.remote_connection import RemoteConnection
        except ImportError:
            raise MissingExtraError("Appium-Python-Client", "android") from None

        class Connection(AppiumConnection):
            # The client stores a session's idempotency key on the class, so two sessions that start
            # at the same time could send the same key and get the same session. Requests are never
            # repeated here, so no key is needed.
            get_remote_connection_headers = RemoteConnection.get_remote_connection_headers

        config = AppiumClientConfig(
            remote_server_addr=self._url,
            timeout=timeout,
            # By default urllib3 retries three times, which would make a time limit four times as
            # long, and repeat taps.
            init_args_for_pool_manager={"init_args_for_pool_manager": {"retries": False}},
            **({"proxy": Proxy({"proxyType": {"string": "DIRECT"}})} if self.local else {}),
        )
        options = AppiumOptions().load_capabilities(capabilities)
        connection = Connection(client_config=config)
        try:
            self._driver = WebDriver(connection, options=options)
        except BaseException:  # also on cancellation, the connection must be closed
            connection.close()  # type: ignore[no-untyped-call]
            raise
        config.timeout = self._timeout

    def _quit(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        from selenium.common.exceptions import WebDriverException
        from urllib3.exceptions import HTTPError

        try:
            driver.quit()
        except (WebDriverException, HTTPError, OSError):
            # The server or its session has ended already.
            pass
        finally:
            driver.command_executor.close()  # type: ignore[no-untyped-call]


def first_line(message: str) -> str:
    """Returns the reason in Appium's error message, without its prefix and stack trace."""
    reason = message.rpartition("Original error: ")[2]
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:300]


class AppiumPhone:
    """A phone behind an Appium server, which has to run already (`appium server`).

    Only `shell` needs a server started with --allow-insecure=uiautomator2:adb_shell.

    Args:
        url: The Appium server's address.
        adb_port: The port of the adb server of the phone. None: adb's own default.
        timeout: The time limit of a command, in seconds.
        open_timeout: The time limit for starting a session, in seconds.

    Raises:
        UsageError: The address is not a server's URL.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:4723",
        *,
        adb_port: int | None = None,
        timeout: float = 15.0,
        open_timeout: float = 90.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{url!r} is not the URL of an Appium server; expected one such as "
                "http://127.0.0.1:4723"
            )
        self._url = url.rstrip("/")
        self._adb = AdbServer(adb_port, timeout=timeout)
        self._timeout = timeout
        self._open_timeout = open_timeout
        self._session: AppiumSession | None = None

    def capabilities_for(self, device: str | None) -> dict[str, Any]:
        """Returns the capabilities of a session.

        Args:
            device: The device's serial number. None: the only device.
        """
        named = {} if device is None else {"appium:udid": device}
        return {
            "platformName": "Android",
            "appium:automationName": "UiAutomator2",
            "appium:adbPort": self._adb.port,
            # Agents may take longer than a minute, after which sessions end by default; a lost
            # session ends after an hour.
            "appium:newCommandTimeout": 3600,
            # The limit of a screenshot is below the client's own, or urllib3 would time out first
            # and hide the cause.
            "appium:uiautomator2ServerReadTimeout": round(self._timeout * 1000),
            "appium:adbExecTimeout": round(self._timeout * 1000),
            # The server has to time out before the client, or it would start a session that is
            # never ended.
            "appium:uiautomator2ServerLaunchTimeout": round(self._open_timeout * 1000 / 3),
            "appium:uiautomator2ServerInstallTimeout": round(self._open_timeout * 1000 / 3),
            # No app is under test, so none may be cleared or stopped.
            "appium:noReset": True,
            "appium:dontStopAppOnReset": True,
            # Restarting adb for one phone would disconnect all others.
            "appium:suppressKillServer": True,
            # The log is not used, and would grow.
            "appium:skipLogcatCapture": True,
            # Read the tree at once; screenshots decide whether the screen is stable.
            # Some vendors' phones refuse a setting that only tests of hidden APIs need.
            "appium:ignoreHiddenApiPolicyError": True,
            "appium:settings[waitForIdleTimeout]": 0,
            **named,
        }

    async def open(self, device: str | None) -> str | None:
        """Starts a new session on the server."""
        await self.close()
        session = self._session = AppiumSession(self._url, self._timeout + LONGER)
        try:
            if session.local and sdk_program("platform-tools", "adb"):
                # Checked here, since Appium searches 20 seconds for a missing phone, and its error
                # says less.
                await self._adb.attach()
                device = await self._adb.find(device)
            await session.start(self.capabilities_for(device), self._open_timeout)
        except PhoneLostError as lost:
            if "socket hang up" in str(lost):
                # The instrumentation has ended; another session may work.
                raise
            raise EnvironmentFailedError(str(lost)) from lost
        return device

    async def close(self) -> None:
        """Ends the session; if the server does not answer, its own time limit ends it."""
        session, self._session = self._session, None
        try:
            if session is not None:
                await session.end()
        finally:
            await self._adb.detach()

    async def size(self) -> Size:
        """Reads the window size from the driver."""
        size = await self._do("size", lambda driver: driver.get_window_size())
        return int(size["width"]), int(size["height"])

    async def screenshot(self) -> bytes:
        """Takes a screenshot by UiAutomator2."""
        return whole_png(
            base64.b64decode(
                await self._do("screenshot", lambda driver: driver.get_screenshot_as_base64())
            )
        )

    async def tree(self) -> str | None:
        """Reads the page source."""
        return await self._do("page source", lambda driver: driver.page_source)

    async def tap(self, x: int, y: int) -> None:
        """Touches the screen for a tenth of a second."""
        await self._do("tap", lambda driver: driver.tap([(x, y)], 100))

    async def swipe(self, start: tuple[int, int], end: tuple[int, int], seconds: float) -> None:
        """Moves one finger along a line."""
        await self._do("swipe", lambda driver: driver.swipe(*start, *end, round(seconds * 1000)))

    async def type(self, text: str) -> None:
        """Types into the focused field directly, or by Appium's own keyboard if the field (in some
        web views) refuses that.

        Raises:
            EnvironmentFailedError: No field has the focus.
        """
        await self._do("typing", lambda driver: _type(driver, text))

    async def key(self, code: int) -> None:
        """Presses a key by `press_keycode`."""
        await self._do("key", lambda driver: driver.press_keycode(code))

    async def launch(self, start: Start) -> None:
        """Opens an app by `mobile: startActivity`, `activateApp` or `deepLink`."""
        await self._do("start", lambda driver: _launch(driver, start))

    async def shell(self, command: str) -> str:
        """Runs `mobile: shell`.

        Raises:
            UsageError: The server does not allow it.
        """
        return str(await self._do("shell", lambda driver: _shell(driver, command)))

    async def _do(self, what: str, do: Callable[[WebDriver], T]) -> T:
        if self._session is None:
            raise UsageError("no session with the phone; call open first")
        return await self._session.do(what, do)


def _type(driver: WebDriver, text: str) -> None:
    from selenium.common.exceptions import InvalidElementStateException, NoSuchElementException

    try:
        driver.switch_to.active_element.send_keys(text)
    except NoSuchElementException:
        raise EnvironmentFailedError(
            "no field has the focus, so the typed text would be lost; tap a field first"
        ) from None
    except InvalidElementStateException:
        driver.execute_script("mobile: type", {"text": text})


def _launch(driver: WebDriver, start: Start) -> None:
    from selenium.common.exceptions import WebDriverException

    try:
        if start.url is not None:
            # The driver does not quote URLs sufficiently for the phone's shell.
            driver.execute_script(
                "mobile: deepLink", {"url": quote(start.url, safe=":/?#[]@!&*+,;=%~")}
            )
        elif start.activity is not None:
            component = f"{start.package}/{start.activity}"
            driver.execute_script(
                "mobile: startActivity", {"intent": component, "wait": True, "stop": True}
            )
        else:
            driver.execute_script("mobile: terminateApp", {"appId": start.package})
            driver.execute_script("mobile: activateApp", {"appId": start.package})
    except WebDriverException as error:
        what = start.url or start.package
        if any(
            word in (error.msg or "")
            for word in ("does not exist", "unable to resolve", "installed", "Cannot activate")
        ):
            raise EnvironmentFailedError(
                f"{what} cannot be opened: {first_line(error.msg or '')}"
            ) from None
        raise


def _shell(driver: WebDriver, command: str) -> str:
    from selenium.common.exceptions import WebDriverException

    try:
        return str(driver.execute_script("mobile: shell", {"command": command}))
    except WebDriverException as error:
        message = error.msg or ""
        if "adb_shell" in message:
            raise UsageError(
                "the Appium server does not allow shell commands; start it with "
                "--allow-insecure=uiautomator2:adb_shell"
            ) from None
        reason = message.rpartition("StdErr: ")[2].strip()
        if "exited with code" in message and not reason.startswith(("error: ", "adb: ")):
            raise EnvironmentFailedError(
                f"`{command}` failed on the phone: {first_line(reason)}"
            ) from None
        # An error of the adb program itself: the phone is disconnected.
        raise
