"""Pages and a browser for them; fake iOS simulators, and environments on them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.emulators.ios.environment import Ios, IosSpec
from tests.chromium import started_chromium
from tests.support.ios import FakeSimulators

from .browser.pages import Site, serving


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The local pages."""
    with serving() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    """One browser for the tests of a file; each has a profile of its own."""
    async with started_chromium() as browser:
        yield browser


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which has to be empty in the end. Sockets need short names,
    so not below tmp_path.
    """
    with tempfile.TemporaryDirectory(prefix="ios", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def companions(tmp_path: Path) -> Callable[[], list[int]]:
    """Gives the processes of the fake that run now."""

    def running() -> list[int]:
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
        ).stdout
        return [
            int(line.split()[0]) for line in listed.splitlines() if str(tmp_path / "fake") in line
        ]

    return running


@pytest.fixture
def simulators(tmp_path: Path, companions: Callable[[], list[int]]) -> Iterator[FakeSimulators]:
    """One that is off, with small pictures: a pixel a point. No process of the fake may be left in
    the end.
    """
    fakes = FakeSimulators(tmp_path / "fake")
    with fakes.change(fakes.udids[0]) as simulator:
        simulator.density = 1
    yield fakes
    assert companions() == []


@pytest_asyncio.fixture
async def make_ios(
    simulators: FakeSimulators, temporary: Path, tmp_path: Path
) -> AsyncIterator[Callable[..., Ios]]:
    """Makes environments without pauses, which are closed in the end."""
    async with AsyncExitStack() as opened:

        def one(**options: Any) -> Ios:
            options = {
                "simctl": str(simulators.simctl),
                "after_action": 0.0,
                "settle_gap": 0.0,
                "idle": 0.0,
                **options,
            }
            made = Ios(tmp_path / "images", IosSpec(companion=str(simulators.companion), **options))
            opened.push_async_callback(made.close)
            return made

        yield one


@pytest.fixture
def make_running(simulators: FakeSimulators, make_ios: Callable[..., Ios]) -> Callable[..., Ios]:
    """The same on the simulator itself, which is on already: quicker than copies, for tests of
    something else.
    """

    def one(**options: Any) -> Ios:
        with simulators.change(simulators.udids[0]) as simulator:
            simulator.boot()
        return make_ios(restore="none", **options)

    return one
