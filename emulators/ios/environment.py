"""The iOS environment over Meta's idb: each episode gets a clone of a prepared simulator.

Touches are in points, screenshots in pixels; agents use fractions of the screen only. Actions
follow arXiv 2404.06474: `back` is the home button, because there is no back button, and a swipe up
on the home screen, which would have no effect, turns its pages. The paper ends episodes after 10
actions.

If the companion dies, hangs or fails, reading requests (screenshots, elements) are repeated once on
a new companion. Actions are repeated only if they cannot have reached the phone. At most one new
companion is started per episode.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from prill.actions.phone import TAP_DISTANCE, finger_path, is_swipe, typed_lines
from prill.emulators.ios.companion import Companion, CompanionError
from prill.emulators.ios.prepared import PreparedScreen, PreparedSimulator, Restore
from prill.emulators.ios.screen import (
    ENTER,
    can_type,
    check_size,
    combination,
    is_home_screen,
    read_elements,
)
from prill.emulators.ios.simulators import companion_path
from prill.emulators.phones import PhoneConfig
from prill.emulators.screenshots import (
    SettleGapOption,
    SettleTimeoutOption,
    keep_screenshot,
    settled_picture,
)
from prill.emulators.settings import IdleOption, Playing, Setting
from prill.emulators.widgets import Widget, action_point, describe, located
from prill.errors import EnvironmentFailedError, MissingExtraError, UsageError
from prill.types import Action, Observation, Platform, Point, Task

NEW_YORK = (40.7128, -74.0060)
# Slow enough that pages do not keep scrolling after the swipe.
SWIPE_SECONDS = 0.5


_SIMULATOR = Meta(
    description="Name or UDID of the simulator, or of several, one per worker (default: the only "
    "one)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IosSpec:
    """The options of an iOS simulator: device, preparation and observation. Times are in seconds.

    `restore` sets how an episode starts. "clone" makes a copy that is deleted afterwards (the
    prepared simulator has to be off), "erase" restores the simulator's factory state, and "none"
    continues in the current state. `swipe_up` on the home screen becomes a swipe to the right, as
    in the paper's evaluation, or "random": left or right with equal probability, as in its data
    collection, drawn from `seed`, the task's id and the number of times that this object has
    started the task. A screenshot is used once two of them `settle_gap` apart are equal, or after
    `settle_timeout`. `after_action` is a pause (the paper: 1).
    """

    simulator: Annotated[str | None, _SIMULATOR] = None
    companion: Annotated[
        str | None,
        Meta(
            description="Path to idb_companion. None: $PRILL_IDB_COMPANION, else the one on "
            "the PATH."
        ),
    ] = None
    simctl: Annotated[
        str | None,
        Meta(description="Path to simctl, for text outside the US keyboard. None: Xcode's."),
    ] = None
    restore: Annotated[Restore, Meta(description="State to restore before each episode.")] = "clone"
    swipe_up: Annotated[
        Literal["right", "random"], Meta(description="Effect of a swipe up on the home screen.")
    ] = "right"
    seed: Annotated[int, Meta(description="Seed of random swipes.")] = 0
    location: Annotated[
        tuple[float, float] | None,
        Meta(description="Latitude and longitude (the paper's: New York). None: unchanged."),
    ] = NEW_YORK
    settle_gap: SettleGapOption = 0.1
    settle_timeout: SettleTimeoutOption = 5.0
    after_action: Annotated[float, Meta(ge=0, description="Seconds to wait after an action.")] = 0.3
    idle: IdleOption = 1.0
    boot_timeout: Annotated[
        float,
        Meta(gt=0, description="Timeout for booting, cloning or deleting a simulator, in seconds."),
    ] = 180.0
    timeout: Annotated[
        float, Meta(gt=0, description="Timeout of each request to a simulator, in seconds.")
    ] = 20.0


class Ios:
    """iOS simulators as an environment. Screenshots are named by content; the text lists the
    screen's elements.

    Each episode opens the task's `start_url`: `app:com.apple.Preferences` or a URL.

    Args:
        images: The folder for screenshots.
        spec: The options.

    Raises:
        UsageError: There is no idb_companion.
        MissingExtraError: fb-idb is not installed.
    """

    def __init__(self, images: Path, spec: IosSpec = IosSpec()) -> None:
        if importlib.util.find_spec("idb") is None or importlib.util.find_spec("grpclib") is None:
            raise MissingExtraError("fb-idb", "ios")
        executable = spec.companion or companion_path()
        if not os.access(executable, os.X_OK):
            raise UsageError(
                f"{executable} is not an executable file; give the path of idb_companion"
            )
        self._phone = PreparedSimulator(
            executable,
            spec.simulator,
            spec.restore,
            boot_timeout=spec.boot_timeout,
            timeout=spec.timeout,
        )
        self._images = images
        self._spec = spec
        self._episodes_of: Counter[str] = Counter()
        self._random = random.Random(spec.seed)
        self._companion: Companion | None = None
        self._screen = PreparedScreen((0, 0), (0, 0))
        self._elements: list[Widget] = []

    async def reset(self, task: Task) -> Observation:
        """Brings a simulator to the start of the task.

        Raises:
            UsageError: There is no such simulator, or `start_url` is not a URL.
            EnvironmentFailedError: The start of the task cannot be opened.
        """
        start = task.start_url
        if start is not None and not urlsplit(start).scheme:
            raise UsageError(
                f"start_url {start!r}: expected app:<bundle id>, such as "
                "app:com.apple.Preferences, or a URL"
            )
        self._random = random.Random(f"{self._spec.seed} {task.id} {self._episodes_of[task.id]}")
        self._episodes_of[task.id] += 1
        self._companion = None
        async with self._episode():
            self._companion, self._screen = await self._phone.fresh()
            if self._spec.location is not None:
                latitude, longitude = self._spec.location
                await self._session().act(
                    "location", lambda client: client.set_location(latitude, longitude)
                )
            if start is not None:
                await self._open(start)
                await asyncio.sleep(self._spec.after_action)
            return await self._observe()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the stable screen. Actions on missing elements change nothing."""
        self._session()
        async with self._episode():
            if not action.is_final:
                await self._perform(action)
                await asyncio.sleep(self._spec.after_action)
            return await self._observe(), action.is_final

    async def locate(self, action: Action) -> Action:
        """Adds the element's text and the point of touch to the action."""
        return located(action, self._elements)

    async def close(self) -> None:
        """Ends the companion, deletes the copy, shuts down what was started; safe to call twice."""
        self._companion = None
        await self._phone.close()

    @asynccontextmanager
    async def _episode(self) -> AsyncIterator[None]:
        """A context that closes everything after a failure; after a cancellation, reset does."""
        try:
            yield
        except EnvironmentFailedError:
            await self.close()
            raise
        except asyncio.CancelledError:
            self._companion = None
            raise

    def _session(self) -> Companion:
        if self._companion is None:
            raise UsageError("no episode is open; call reset first")
        return self._companion

    async def _perform(self, action: Action) -> None:
        point = action_point(action, self._elements)
        if action.target is not None and point is None:
            return
        if finger := finger_path(self._on_home_screen(action), point):
            await self._touch(*finger)
        elif action.kind == "type" and action.value:
            if point is not None:
                await self._touch(point, point)
                await asyncio.sleep(self._spec.after_action)
            await self._type(action.value)
        elif action.kind == "press" and action.value and (keys := combination(action.value)):
            await self._press(*keys)
        elif action.kind in ("back", "home"):
            from idb.common.types import HIDButtonType

            await self._session().act(
                "home button", lambda client: client.button(HIDButtonType.HOME)
            )
        elif action.kind == "goto" and action.value:
            try:
                await self._open(action.value)
            except CompanionError as failure:
                # A URL that no app opens is the agent's error.
                if not failure.answered:
                    raise
        elif action.kind == "wait":
            await asyncio.sleep(self._spec.idle)

    def _on_home_screen(self, action: Action) -> Action:
        """Changes the direction of a swipe up on the home screen."""
        up = action.kind == "swipe" and (action.value or "").lower() == "up"
        if not up or not is_home_screen(self._elements):
            return action
        drawn = self._random.choice(("left", "right"))
        return replace(action, value="right" if self._spec.swipe_up == "right" else drawn)

    async def _touch(self, touch: Point, lift: Point) -> None:
        start, end = self._points(touch), self._points(lift)
        if not is_swipe(touch, lift, TAP_DISTANCE):
            await self._session().act("tap", lambda client: client.tap(*start))
        else:
            await self._session().act(
                "swipe", lambda client: client.swipe(start, end, SWIPE_SECONDS)
            )

    def _points(self, point: Point) -> Point:
        width, height = self._screen.points
        return min(point[0] * width, width - 1), min(point[1] * height, height - 1)

    async def _type(self, value: str) -> None:
        """Types into the focused field."""
        for number, line in enumerate(typed_lines(value)):
            if number:
                await self._press(ENTER)
            if line:
                await self._type_line(line)

    async def _type_line(self, line: str) -> None:
        if can_type(line):
            await self._session().act("typing", lambda client: client.text(line))
        else:
            await self._phone.paste_board(line, self._spec.simctl)
            if paste := combination("Command+v"):
                await self._press(*paste)

    async def _press(self, code: int, modifiers: list[str] | None = None) -> None:
        from idb.common.hid import key_press_with_modifiers_to_events

        events = key_press_with_modifiers_to_events(code, modifiers)
        await self._session().act("key", lambda client: client.send_events(events))

    async def _open(self, url: str) -> None:
        if url.startswith("app:"):
            await self._session().act(
                "launch",
                lambda client: client.launch(url.removeprefix("app:"), foreground_if_running=True),
            )
        else:
            await self._session().act("open_url", lambda client: client.open_url(url))

    async def _observe(self) -> Observation:
        picture = await settled_picture(
            self._picture, gap=self._spec.settle_gap, timeout=self._spec.settle_timeout
        )
        self._elements = await self._read_elements()
        shot = await asyncio.to_thread(keep_screenshot, picture, self._images)
        return Observation(screenshot=shot, text=describe(self._elements) or None)

    async def _picture(self) -> bytes:
        picture: bytes = await self._session().read(
            "screenshot", lambda client: client.screenshot()
        )
        check_size(picture, self._screen.pixels)
        return picture

    async def _read_elements(self) -> list[Widget]:
        """Reads the elements; an empty list if the app does not expose them, as some do not. The
        observation then has the screenshot only.
        """
        from idb.common.types import AccessibilityInfoOptions

        nested = AccessibilityInfoOptions(nested=True)
        try:
            tree = await self._session().read(
                "accessibility",
                lambda client: client.accessibility_info(None, nested),
                may_refuse=True,
            )
        except CompanionError as failure:
            if not failure.answered:
                raise
            return []
        return read_elements(tree.json, self._screen.points)


@dataclass(frozen=True, kw_only=True)
class IosConfig(PhoneConfig, IosSpec):
    """iOS simulators: `IosConfig(simulator="iPhone 14", tasks="ios_eval")`."""

    name: ClassVar[str] = "ios"
    platform: ClassVar[Platform] = "ios"
    _device: ClassVar[str] = "simulator"
    usual_steps: ClassVar[int] = 10  # the limit of the paper's code
    _identifying: ClassVar[frozenset[str]] = frozenset(
        {"tasks", "goal", "start_url", "simulator", "companion", "simctl", "restore", "swipe_up"}
    )

    simulator: Annotated[str | Sequence[str] | None, _SIMULATOR] = None  # type: ignore[assignment]

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a phone for each worker."""
        named: Any = self.simulator
        # With clones, every worker has copies of its own of the one simulator.
        shared = self.restore == "clone" and "," not in (named or "")
        devices = [named] * run.copies if shared else self.one_a_worker(run.workers)
        # A clone depends on the prepared simulator; erased simulators are interchangeable.
        clone = named if self.restore == "clone" else None
        options = {"simulator": clone, "restore": self.restore, "swipe_up": self.swipe_up}
        leftovers = "the simulator keeps what an earlier attempt changed"
        return self.phones(
            run, IosSpec, devices, options, leftovers if self.restore == "none" else None
        )
