"""WebArena-Infinity's applications as an environment: each on a server of its own.

An application keeps its state in the browser and pushes a copy to its server, which verifiers read.
So an episode starts with a reset of the server and a fresh profile, and the copy must equal that of
the application's first start. Observations show `http://APP.localhost/` for the server's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.processes import run_program
from prill.emulators.settings import broken_label
from prill.emulators.webarena_infinity import host
from prill.errors import EnvironmentFailedError
from prill.models import keeper
from prill.types import LabelRecord, Observation, Task, Trajectory

# Nothing outside this machine is reached: some applications load fonts, and a request that fails
# late would delay pages.
OFFLINE = ("--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
_START, _CALL = 30.0, 10.0  # seconds for a server's start, and for one of its replies
_RECENT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinitySpec(PageSpec):
    """Options of the applications."""

    root: Annotated[Path, "checkout of WebArena-Infinity"] = Path("webarena-infinity")
    verifier_timeout: Annotated[
        float, Meta(gt=0, description="Timeout of a task's verifier, in seconds.")
    ] = 60.0


class AppServer:
    """The server of one application, in a process that ends with this one."""

    def __init__(self, folder: Path) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        command = (sys.executable, "-I", host.__file__, "serve", str(folder.resolve()))
        self._process = keeper.begin(command, self._log, os.environ)
        self.url = ""

    async def start(self) -> None:
        """Waits for the port. Raises EnvironmentFailedError."""
        end = time.monotonic() + _START
        while not (line := os.pread(self._log.fileno(), 100, 0).partition(b"\n"))[1]:
            if self._process.poll() is not None or time.monotonic() > end:
                break
            await asyncio.sleep(0.02)
        if not line[0].isdigit():
            raise self._failed("does not start")
        self.url = f"http://127.0.0.1:{int(line[0])}"

    async def call(self, path: str, method: str = "GET") -> Any:
        """Returns the reply of the application's API. Raises EnvironmentFailedError."""

        def read() -> Any:
            request = urllib.request.Request(self.url + path, method=method)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=_CALL) as response:
                return json.load(response)

        try:
            return await asyncio.to_thread(read)
        except (OSError, ValueError) as error:
            raise self._failed(f"did not answer {method} {path}: {error}") from error

    def _failed(self, what: str) -> EnvironmentFailedError:
        lines = keeper.last_output(keeper.last_lines(self._log))
        return EnvironmentFailedError(f"the application's server {what}{lines}")

    async def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.to_thread(self._process.wait)
        self._log.close()


class WebArenaInfinity(BrowserEnvironment):
    """The applications of a checkout, one at a time, with the verifiers as oracle."""

    def __init__(self, images: Path, spec: InfinitySpec, browser: Chromium | None = None) -> None:
        super().__init__(images, spec, browser=browser or Chromium(arguments=OFFLINE))
        self._owns_browser = browser is None
        self._options = spec
        self._seeds: dict[str, Any] = {}
        self._app = self._public = ""
        self._server: AppServer | None = None

    async def reset(self, task: Task) -> Observation:
        """Opens the application of `task.site` in the state that it starts with. Raises
        EnvironmentFailedError if the server does not start, or the state differs.
        """
        await self.finish()
        app = str(task.site)
        if self._server is None or app != self._app:
            await self._end_server()
            self._app, self._public = app, f"http://{app}.localhost"
            self._server = AppServer(Path(self._options.root, "apps", app))
        try:
            await self._server.start()
            await self._server.call("/api/reset", "POST")
            observation = await super().reset(task)
            state = _without_now(await self._server.call("/api/state"))
        except EnvironmentFailedError:
            await self._end_server()  # the next episode gets a new one
            raise
        if state != (seed := self._seeds.setdefault(app, state)):
            parts = ", ".join(name for name in seed if state.get(name) != seed[name])
            raise EnvironmentFailedError(f"{app} starts in another state than before: {parts}")
        return observation

    async def grade(self, trajectory: Trajectory, verifier: Path) -> LabelRecord:
        """Returns the verifier's label, with its message as note. Raises EnvironmentFailedError if
        the verifier fails or does not end in time, so that there is no label.
        """
        if trajectory.error is not None or self._server is None:
            return broken_label(trajectory)
        command = (sys.executable, "-I", host.__file__, "verify", str(verifier), self._server.url)
        limit = self._options.verifier_timeout
        try:
            printed = await run_program(command, limit)
            passed, note = msgspec.json.decode(printed.out, type=tuple[bool, str])
        except TimeoutError:
            raise EnvironmentFailedError(f"the verifier did not end within {limit:g} s") from None
        except msgspec.DecodeError:
            raise EnvironmentFailedError(f"the verifier failed: {printed.last_line}") from None
        return LabelRecord(id=trajectory.id, success=passed, source="oracle", note=note)

    async def close(self) -> None:
        """Ends the episode and the server, and the browser unless it is shared."""
        await super().close()
        await self._end_server()

    async def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _real_url(self, url: str) -> str:
        return _moved(url, self._public, self._server.url) if self._server else url

    def _public_url(self, url: str) -> str:
        return _moved(url, self._server.url, self._public) if self._server else url


def _moved(url: str, old: str, new: str) -> str:
    """Returns the address with another origin, if it is of the old one."""
    rest = url.removeprefix(old)
    return new + rest if rest != url and rest[:1] in ("", "/", "?", "#") else url


def _without_now(state: Any) -> Any:
    """Replaces times of the last minutes: an application may write the time of its start."""
    if isinstance(state, dict):
        return {name: _without_now(value) for name, value in state.items()}
    if isinstance(state, list):
        return list(map(_without_now, state))
    with contextlib.suppress(TypeError, ValueError):
        age = datetime.now(UTC) - datetime.fromisoformat(state)
        return "now" if abs(age) < _RECENT else state
    return state
