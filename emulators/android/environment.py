"""The Android environment, over Appium or adb.

    environment = Android(folder, AndroidSpec(device="emulator-5554"))
    environment = Android(folder, AndroidSpec(backend="appium", avd="Pixel_4"))

A failure is detected within the backend's time limits. The session is then restarted once, and
operations that can safely be repeated (screenshots, opening, HOME) are repeated. Taps, swipes,
typing and other keys are repeated only if they cannot have reached the phone. Otherwise the episode
ends, since its record would be unreliable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import Meta

from prill.actions.phone import TAP_DISTANCE, finger_path, is_swipe, typed_lines
from prill.emulators.android.adb import AdbPhone
from prill.emulators.android.appium import AppiumPhone
from prill.emulators.android.avd import Avd
from prill.emulators.android.phone import KEYCODES, WAKE_UP, Phone, PhoneLostError, parse_start
from prill.emulators.android.ui_xml import elements
from prill.emulators.phones import PhoneConfig
from prill.emulators.screenshots import (
    SettleGapOption,
    SettleTimeoutOption,
    Size,
    keep_screenshot,
    png_size,
    settled_picture,
)
from prill.emulators.settings import AppiumOption, IdleOption, Playing, Setting
from prill.emulators.widgets import Widget, action_point, describe, located
from prill.errors import EnvironmentFailedError, UsageError
from prill.types import Action, Observation, Platform, Point, Task

T = TypeVar("T")
# Slow enough that lists do not keep scrolling after the swipe.
SWIPE_SECONDS = 0.5
LONG_PRESS_SECONDS = 1.0  # Android's own limit between a tap and a long press is half a second
HOME, BACK, ENTER = KEYCODES["home"], KEYCODES["back"], KEYCODES["enter"]


_PHONE = Meta(
    description="Serial number of a running device, or of several, one per worker (default: the "
    "only one)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AndroidSpec:
    """The options of an Android phone: device, preparation and observation. Times are in seconds.

    With `avd`, each episode gets a fresh copy of that virtual device. With `snapshot` in addition,
    the copy boots once and each episode loads the snapshot. Otherwise `device` is a running one,
    which starts each episode at its home screen. A screen is stable if two screenshots `settle_gap`
    apart differ only in the status bar; after `settle_timeout` the screenshot is taken anyway.
    Appium servers allow the commands of `prepare` only with a flag (see AppiumPhone).
    """

    device: Annotated[str | None, _PHONE] = None
    avd: Annotated[str | None, Meta(description="Name of a virtual device to start.")] = None
    snapshot: Annotated[
        str | None, Meta(description="Snapshot of the virtual device to restore. Requires avd.")
    ] = None
    window: Annotated[
        bool, Meta(description="Show the window of the virtual device. Requires avd.")
    ] = False
    backend: Annotated[
        Literal["adb", "appium"], Meta(description="Use adb alone, or an Appium 3 server.")
    ] = "adb"
    appium_url: AppiumOption = "http://127.0.0.1:4723"
    adb_port: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Port of the adb server. None: the one that adb uses."),
    ] = None
    prepare: Annotated[
        tuple[str, ...], Meta(description="Commands for the device's shell before each episode.")
    ] = ()
    tree: Annotated[
        bool, Meta(description="Read the UI tree. Takes plain adb one to two seconds.")
    ] = True
    settle_gap: SettleGapOption = 0.3
    settle_timeout: SettleTimeoutOption = 5.0
    idle: IdleOption = 1.0


class Android:
    """Android phones as an environment. Screenshots are named by content; the text lists the
    screen's elements.

    Each episode opens the task's `start_url`: `app:com.example`, `app:com.example/.Main` or a web
    address.

    Args:
        images: The folder for screenshots.
        spec: The options.
        phone: The phone to use. None: the phone of the options.
        virtual_device: The virtual device to use. None: the virtual device of the options, if any.

    Raises:
        UsageError: Both a running and a virtual device are named.
    """

    def __init__(
        self,
        images: Path,
        spec: AndroidSpec = AndroidSpec(),
        *,
        phone: Phone | None = None,
        virtual_device: Avd | None = None,
    ) -> None:
        if spec.avd is not None and spec.device is not None:
            raise UsageError("give either a running device or a virtual one")
        if virtual_device is None and spec.avd is not None:
            virtual_device = Avd(
                spec.avd, adb_port=spec.adb_port, window=spec.window, snapshot=spec.snapshot
            )
        self._images = images
        self._spec = spec
        self._phone = _phone(spec) if phone is None else phone
        self._avd = virtual_device
        self._serial: str | None = None
        self._healthy = False
        self._phone_size: Size = (0, 0)
        # The last observed elements, to which the agent's actions refer.
        self._picture_size: Size = (0, 0)
        self._elements: tuple[Widget, ...] = ()

    async def reset(self, task: Task) -> Observation:
        """Brings the phone to the start of the task.

        Raises:
            UsageError: The task's `start_url` has an unknown form.
            EnvironmentFailedError: The start of the task cannot be opened.
        """
        start = None if task.start_url is None else parse_start(task.start_url)
        async with self._episode() as healthy:
            await self._begin(healthy)
            await self._press(WAKE_UP)
            for command in self._spec.prepare:
                await self._try(partial(self._phone.shell, command), repeat=True)
            await self._press(HOME)
            if start is not None:
                await self._try(partial(self._phone.launch, start), repeat=True)
            return await self._observe()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Acts, and returns the stable screen. Actions on missing elements change nothing."""
        if not self._healthy:
            raise UsageError("no episode is open; call reset first")
        async with self._episode():
            await self._perform(action)
            return await self._observe(), action.is_final

    async def locate(self, action: Action) -> Action:
        """Adds the element's text and the point of touch to the action."""
        return located(action, self._elements)

    async def close(self) -> None:
        """Ends the session, and the virtual device if there is one."""
        self._healthy = False
        try:
            await self._phone.close()
        finally:
            if self._avd is not None:
                await self._avd.close()

    @asynccontextmanager
    async def _episode(self) -> AsyncIterator[bool]:
        """A context around each operation, which yields whether the session was intact.

        A failure closes everything. After a cancellation, the next reset or close does so.
        """
        healthy, self._healthy = self._healthy, False
        try:
            yield healthy
            self._healthy = True
        except EnvironmentFailedError:
            await self.close()
            raise

    async def _begin(self, healthy: bool) -> None:
        if self._avd is not None:
            await self._phone.close()
            self._serial = await self._avd.fresh()
        elif healthy:
            return
        else:
            self._serial = self._spec.device
        await self._reopen()

    async def _reopen(self) -> None:
        try:
            await self._open()
        except PhoneLostError:
            # An Appium server that is still ending the lost session would end the new one as well.
            try:
                await self._open()
            except PhoneLostError as lost:
                raise EnvironmentFailedError(str(lost)) from lost

    async def _open(self) -> None:
        await self._phone.close()
        if self._avd is not None:
            self._avd.check()
        # The phone stays the same for the whole episode, even if another one is connected.
        self._serial = await self._phone.open(self._serial)
        self._phone_size = await self._phone.size()

    async def _try(self, do: Callable[[], Awaitable[T]], *, repeat: bool) -> T:
        """Runs an operation, once more on a new session if that is lost and `repeat` allows it."""
        try:
            return await do()
        except PhoneLostError as lost:
            if lost.sent and not repeat:
                raise EnvironmentFailedError(
                    f"{lost}; the action may have been carried out, so it was not repeated"
                ) from lost
            first = lost
        try:
            await self._reopen()
        except EnvironmentFailedError as failure:
            raise EnvironmentFailedError(
                f"{first}; starting a new session failed, too: {failure}"
            ) from first
        try:
            return await do()
        except PhoneLostError as lost:
            raise EnvironmentFailedError(f"{lost}; a new session did not help") from lost

    async def _perform(self, action: Action) -> None:
        point = action_point(action, self._elements)
        if action.target is not None and point is None:
            return
        key = (action.value or "").lower().removeprefix("keycode_")
        if finger := finger_path(action, point):
            await self._touch(*finger)
        elif action.kind == "long_press" and (spot := point or action.point) is not None:
            still = _pixels(spot, self._picture_size)
            await self._try(
                partial(self._phone.swipe, still, still, LONG_PRESS_SECONDS), repeat=False
            )
        elif action.kind == "type" and action.value:
            if point is not None:
                await self._touch(point, point)
                # Text typed before the field has the focus is lost without an error.
                await self._picture()
            await self._type(action.value)
        elif action.kind == "press" and (code := KEYCODES.get(key)):
            await self._press(code)
        elif action.kind in ("back", "home"):
            await self._press(BACK if action.kind == "back" else HOME)
        elif action.kind == "wait":
            await asyncio.sleep(self._spec.idle)

    async def _touch(self, touch: Point, lift: Point) -> None:
        start, end = _pixels(touch, self._picture_size), _pixels(lift, self._picture_size)
        if not is_swipe(touch, lift, TAP_DISTANCE):
            await self._try(partial(self._phone.tap, *start), repeat=False)
        else:
            await self._try(partial(self._phone.swipe, start, end, SWIPE_SECONDS), repeat=False)

    async def _type(self, text: str) -> None:
        for number, line in enumerate(typed_lines(text)):
            if number:
                await self._press(ENTER)
            if line:
                await self._try(partial(self._phone.type, line), repeat=False)

    async def _press(self, code: int) -> None:
        await self._try(partial(self._phone.key, code), repeat=code in (HOME, WAKE_UP))

    async def _observe(self) -> Observation:
        picture = await self._picture()
        if not self._fits(picture):
            # The phone may have been unfolded, or its resolution changed.
            await self._reopen()
            picture = await self._picture()
        size = self._picture_size = png_size(picture)
        if not self._fits(picture):
            width, height = self._phone_size
            sizes = (
                f"{size[0]} x {size[1]} pixels, but the phone says its screen has {width} x "
                f"{height}"
            )
            raise EnvironmentFailedError(f"the screenshot has {sizes}")
        self._elements, text = (), None
        if self._spec.tree and (xml := await self._try(self._phone.tree, repeat=True)) is not None:
            try:
                self._elements = elements(xml, size)
            except ValueError as error:
                raise EnvironmentFailedError(str(error)) from error
            text = describe(self._elements)
        return Observation(
            screenshot=await asyncio.to_thread(keep_screenshot, picture, self._images), text=text
        )

    async def _picture(self) -> bytes:
        async def take() -> bytes:
            return await self._try(self._phone.screenshot, repeat=True)

        return await settled_picture(
            take, gap=self._spec.settle_gap, timeout=self._spec.settle_timeout
        )

    def _fits(self, picture: bytes) -> bool:
        return sorted(png_size(picture)) == sorted(self._phone_size)


def _phone(spec: AndroidSpec) -> Phone:
    if spec.backend == "adb":
        return AdbPhone(spec.adb_port)
    return AppiumPhone(spec.appium_url, adb_port=spec.adb_port)


def _pixels(point: Point, size: Size) -> tuple[int, int]:
    x, y = (min(side - 1, int(part * side)) for part, side in zip(point, size, strict=True))
    return x, y


@dataclass(frozen=True, kw_only=True)
class AndroidConfig(PhoneConfig, AndroidSpec):
    """Android devices and emulators: `AndroidConfig(avd="Pixel_4_API_33", tasks="android")`."""

    name: ClassVar[str] = "android"
    platform: ClassVar[Platform] = "android"
    usual_steps: ClassVar[int] = 20  # the paper's limit (arXiv 2404.06474, section 4.3)
    # The device and the connection do not change an episode's identity.
    _identifying: ClassVar[frozenset[str]] = frozenset(
        {
            "tasks",
            "goal",
            "start_url",
            "device",
            "avd",
            "snapshot",
            "backend",
            "window",
            "appium_url",
            "adb_port",
        }
    )

    device: Annotated[str | Sequence[str] | None, _PHONE] = None  # type: ignore[assignment]

    def check(self) -> None:
        """Checks that at most one of a running and a virtual device is given."""
        super().check()
        if self.avd and self.device:
            raise UsageError("give either avd or device", parameters=("avd", "device"))

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a phone for each worker."""
        devices = [None] * run.copies if self.avd else self.one_a_worker(run.workers)
        options = {"avd": self.avd, "snapshot": self.snapshot, "backend": self.backend}
        leftovers = (
            None
            if self.avd
            else "the device keeps what an earlier attempt changed; with a virtual device it "
            "would not"
        )
        return self.phones(run, AndroidSpec, devices, options, leftovers)
