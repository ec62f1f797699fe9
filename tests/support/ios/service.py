"""The gRPC service of idb_companion for one fake simulator. Only the calls of an environment are
implemented.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.ios import touch
from tests.support.ios.faults import delay, next_fault
from tests.support.ios.screen import accessibility, picture, screen
from tests.support.ios.simulators import DeviceSet, NoSimulatorError, Simulator

SHIFT, COMMAND = 225, 227
MODIFIERS = (224, SHIFT, 226, COMMAND)


class Service:
    """The handler for grpclib. `folder` holds the faults and the log of requests."""

    def __init__(self, folder: Path, devices: DeviceSet, udid: str) -> None:
        self._folder, self._devices, self._udid = folder, devices, udid
        self._pictures: dict[bytes, bytes] = {}

    def __mapping__(self) -> dict[str, Any]:
        import idb.grpc.idb_pb2 as pb
        from grpclib.const import Cardinality, Handler

        one, many_one, many = (
            Cardinality.UNARY_UNARY,
            Cardinality.STREAM_UNARY,
            Cardinality.STREAM_STREAM,
        )
        calls: dict[str, tuple[Callable[[Any], Any], Cardinality, Any, Any]] = {
            "connect": (self._connect, one, pb.ConnectRequest, pb.ConnectResponse),
            "describe": (
                self._describe,
                one,
                pb.TargetDescriptionRequest,
                pb.TargetDescriptionResponse,
            ),
            "screenshot": (self._screenshot, one, pb.ScreenshotRequest, pb.ScreenshotResponse),
            "accessibility_info": (
                self._accessibility,
                one,
                pb.AccessibilityInfoRequest,
                pb.AccessibilityInfoResponse,
            ),
            "set_location": (self._location, one, pb.SetLocationRequest, pb.SetLocationResponse),
            "open_url": (self._open_url, one, pb.OpenUrlRequest, pb.OpenUrlRequest),
            "launch": (self._launch, many, pb.LaunchRequest, pb.LaunchResponse),
            "hid": (self._hid, many_one, pb.HIDEvent, pb.HIDResponse),
        }
        return {
            f"/idb.CompanionService/{name}": Handler(self._with_faults(name, call), *rest)
            for name, (call, *rest) in calls.items()
        }

    def _with_faults(self, name: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def answer(stream: Any) -> None:
            from grpclib import GRPCError, Status

            fault = next_fault(self._folder, name)
            await asyncio.sleep(delay(fault))
            if fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault == "error":
                raise GRPCError(Status.INTERNAL, f"{name} was told to fail")
            elif fault == "gone":
                self._devices.delete(self._udid)
            stream.fault = fault
            try:
                await call(stream)
            except NoSimulatorError as error:
                raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from None
            except KeyError as error:
                raise GRPCError(
                    Status.INTERNAL, f"nothing on this phone opens {error.args[0]}"
                ) from None

        return answer

    def _booted(self) -> Simulator:
        from grpclib import GRPCError, Status

        simulator = self._devices.read(self._udid)
        if simulator.state != "Booted":
            raise GRPCError(
                Status.FAILED_PRECONDITION, f"{self._udid} is {simulator.state}, not Booted"
            )
        return simulator

    def _note(self, what: str) -> None:
        with (self._folder / "events.log").open("a", encoding="utf-8") as log:
            log.write(f"{self._udid} {what}\n")

    async def _connect(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        await stream.recv_message()
        await stream.send_message(
            pb.ConnectResponse(companion=pb.CompanionInfo(udid=self._udid, is_local=True))
        )

    async def _describe(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        await stream.recv_message()
        simulator = self._devices.read(self._udid)
        size = pb.ScreenDimensions(
            width=simulator.width * simulator.density,
            height=simulator.height * simulator.density,
            density=simulator.density,
            width_points=simulator.width,
            height_points=simulator.height,
        )
        description = pb.TargetDescription(
            udid=simulator.udid,
            name=simulator.name,
            state=simulator.state,
            target_type="simulator",
            os_version=simulator.os_version,
            architecture="arm64",
            screen_dimensions=None if stream.fault == "empty" else size,
        )
        await stream.send_message(pb.TargetDescriptionResponse(target_description=description))

    async def _screenshot(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb
        import msgspec

        await stream.recv_message()
        simulator = self._booted()
        if stream.fault == "small":
            simulator = msgspec.structs.replace(simulator, width=320, height=200, density=1)
        key = msgspec.json.encode(simulator)
        if key not in self._pictures:
            self._pictures = {key: picture(simulator)}
        whole = self._pictures[key]
        data = {"garbage": b"not a picture", "cut": whole[: len(whole) // 2]}.get(
            stream.fault, whole
        )
        await stream.send_message(pb.ScreenshotResponse(image_data=data, image_format="png"))

    async def _accessibility(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        request = await stream.recv_message()
        tree = accessibility(
            screen(self._booted()), request.format == pb.AccessibilityInfoRequest.NESTED
        )
        text = {"garbage": "}{", "empty": json.dumps([])}.get(stream.fault, tree)
        await stream.send_message(pb.AccessibilityInfoResponse(json=text))

    async def _location(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        location = (await stream.recv_message()).location
        with self._devices.change(self._udid) as simulator:
            simulator.location = (location.latitude, location.longitude)
        self._note(f"location {location.latitude:g} {location.longitude:g}")
        await stream.send_message(pb.SetLocationResponse())

    async def _open_url(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        url = (await stream.recv_message()).url
        self._note(f"open_url {url}")
        with self._devices.change(self._udid) as simulator:
            touch.open_url(simulator, url)
        await stream.send_message(pb.OpenUrlRequest())

    async def _launch(self, stream: Any) -> None:
        bundle = (await stream.recv_message()).start.bundle_id
        self._note(f"launch {bundle}")
        with self._devices.change(self._udid) as simulator:
            touch.open_app(simulator, bundle)

    async def _hid(self, stream: Any) -> None:
        import idb.grpc.idb_pb2 as pb

        events = [event async for event in stream]
        self._booted()
        with self._devices.change(self._udid) as simulator:
            held: set[int] = set()
            for event in events:
                self._event(simulator, event, held)
        await stream.send_message(pb.HIDResponse())

    def _event(self, simulator: Simulator, event: Any, held: set[int]) -> None:
        kind = event.WhichOneof("event")
        if kind == "swipe":
            start, end = ((place.x, place.y) for place in (event.swipe.start, event.swipe.end))
            self._note("swipe " + " ".join(f"{side:g}" for side in (*start, *end)))
            return touch.swipe(simulator, start, end)
        if kind != "press":
            return
        action, down = event.press.action, event.press.direction == 0
        what = action.WhichOneof("action")
        if what == "key" and action.key.keycode in MODIFIERS:
            return (held.add if down else held.discard)(action.key.keycode)
        if not down:
            return
        if what == "touch":
            x, y = action.touch.point.x, action.touch.point.y
            self._note(f"tap {x:g} {y:g}")
            touch.tap(simulator, x, y)
        elif what == "button":
            self._note(f"button {action.button.button}")
            touch.go_home(simulator)
        elif what == "key":
            code = action.key.keycode
            self._note("key " + "+".join(str(number) for number in (*sorted(held), code)))
            touch.key(simulator, code, characters().get((SHIFT in held, code)), COMMAND in held)


def characters() -> dict[tuple[bool, int], str]:
    """Returns the characters of each key without and with shift, from idb's own table of the US
    keyboard.
    """
    from idb.common.hid import KEY_MAP

    table = {}
    for character, events in KEY_MAP.items():
        codes = [event.action.keycode for event in events if event.direction.name == "DOWN"]
        table[SHIFT in codes, codes[-1]] = character
    return table
