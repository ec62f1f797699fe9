"""One session on an Appium server, through Appium's own Python client, which blocks; what goes wrong, told in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from prill.emulators.phones import PhoneLost
from prill.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from appium.webdriver.webdriver import WebDriver

T = TypeVar("T")
# What the server says when a command cannot have reached the phone.
_NOT_SENT = (
    "instrumentation process is not running",
    "session is either terminated or not started",
    "A session is either",
    "ECONNREFUSED",
)
# The client waits longer than the driver, so that it hears what went wrong; see `uiautomator2ServerReadTimeout`.
LONGER = 5.0


class AppiumSession:
    """One session on the server at `url`, and the one thread that speaks for it: a call that hangs holds up no other phone.

    `timeout` in seconds bounds each call, `local` tells a server on this machine. Raises PhoneLost.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self.local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prill-appium")
        self._driver: WebDriver | None = None

    async def start(self, capabilities: dict[str, Any], timeout: float) -> None:
        """Asks for it; `timeout` bounds that."""
        await self._run("session", lambda: self._open(capabilities, timeout), timeout)

    async def do(self, what: str, do: Callable[[WebDriver], T]) -> T:
        """What the call gives; `what` names it in messages."""
        driver = self._driver
        if driver is None:
            raise UsageError("the session was not started")
        return await self._run(what, lambda: do(driver), self._timeout)

    async def end(self) -> None:
        """Ends it, within the bound."""
        # Behind whatever hangs in the thread: a session that comes into being after all is ended as well.
        last = self._thread.submit(self._quit)
        self._thread.shutdown(wait=False)
        await asyncio.wait([asyncio.wrap_future(last)], timeout=self._timeout)

    async def _run(self, what: str, do: Callable[[], T], timeout: float) -> T:
        try:
            from selenium.common.exceptions import InvalidSessionIdException, WebDriverException
            from urllib3.exceptions import HTTPError, NewConnectionError
        except ImportError:
            raise MissingExtra("Appium-Python-Client", "android") from None

        try:
            async with asyncio.timeout(timeout + LONGER):
                return await asyncio.get_running_loop().run_in_executor(self._thread, do)
        except TimeoutError:
            raise PhoneLost(f"the {what} did not come within {timeout:g} s", sent=True) from None
        except NewConnectionError:
            raise PhoneLost(f"no Appium server answers at {self._url} (to start one: appium server)", sent=False) from None
        except (HTTPError, OSError) as error:
            raise PhoneLost(
                f"the {what} broke off: {first_line(str(error.args[-1] if error.args else error))}", sent=True
            ) from None
        except WebDriverException as error:
            said = error.msg or type(error).__name__
            sent = not (isinstance(error, InvalidSessionIdException) or any(words in said for words in _NOT_SENT))
            raise PhoneLost(f"the {what} failed: {first_line(said)}", sent=sent) from None

    def _open(self, capabilities: dict[str, Any], timeout: float) -> None:
        try:
            from appium.options.common import AppiumOptions
            from appium.webdriver.appium_connection import AppiumConnection
            from appium.webdriver.client_config import AppiumClientConfig
            from appium.webdriver.webdriver import WebDriver
            from selenium.webdriver.common.proxy import Proxy
            from selenium.webdriver.remote.remote_connection import RemoteConnection
        except ImportError:
            raise MissingExtra("Appium-Python-Client", "android") from None

        class Connection(AppiumConnection):
            # The client keeps a session's idempotency key on the class: two sessions that start at the same moment could
            # send the same one, and be given one session between them. Nothing is sent twice here, so there is no key.
            get_remote_connection_headers = RemoteConnection.get_remote_connection_headers

        config = AppiumClientConfig(
            remote_server_addr=self._url,
            timeout=timeout,
            # By default urllib3 asks three times more: a bound would hold four times as long, and a tap could be four.
            init_args_for_pool_manager={"init_args_for_pool_manager": {"retries": False}},
            **({"proxy": Proxy({"proxyType": {"string": "DIRECT"}})} if self.local else {}),
        )
        options = AppiumOptions().load_capabilities(capabilities)
        connection = Connection(client_config=config)
        try:
            self._driver = WebDriver(connection, options=options)
        except BaseException:
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
            # The server is gone, or has forgotten the session: there is nothing left to end.
            pass
        finally:
            driver.command_executor.close()  # type: ignore[no-untyped-call]


def first_line(said: str) -> str:
    """Without what Appium puts before each reason, and the stack behind it."""
    reason = said.rpartition("Original error: ")[2]
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:300]
