"""The command line of the fake. `python -m tests.support.ios --make DIR` makes a folder with
executables that call it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.ios.faults import delay, next_fault
from tests.support.ios.simulators import DeviceSet, NoSimulatorError, Simulator, new_udid

COMMANDS = ("boot", "shutdown", "erase", "clone", "delete", "create")
ORPHAN_CHECK = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, or serves until it is ended."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.ios", allow_abbrev=False, description=__doc__
    )
    parser.add_argument(
        "--make",
        metavar="DIR",
        type=Path,
        help="prepare a folder of fake simulators and say how to use it",
    )
    parser.add_argument(
        "--names",
        default="iPhone 14",
        metavar="A,B",
        help="with --make: the simulators (default: iPhone 14)",
    )
    for name in ("idb_companion", "simctl", "device-set-path", "clone-destination-set"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    for name in (*COMMANDS, "list", "udid", "grpc-port", "grpc-domain-sock", "terminate-offline"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args(arguments)
    try:
        if args.make:
            return make(args.make, args.names.split(","))
        if args.simctl:
            return simctl(args.simctl, rest)
        if not args.idb_companion:
            parser.error("give --make DIR")
        if args.version:
            print('{"build_time":"10:00:00","build_date":"Aug 12 2022"}')
            return 0
        return companion(args)
    except NoSimulatorError as error:
        print(error, file=sys.stderr)
        return 1


def make(folder: Path, names: Sequence[str]) -> int:
    """Makes the folder and prints how to use it."""
    from tests.support.ios.folder import FakeSimulators

    fakes = FakeSimulators(folder, names)
    for udid in fakes.udids:
        print(fakes.read(udid).description())
    print(
        f"\nTry: idb --companion-path {fakes.companion} list-targets\nIn prill: "
        f"PRILL_IDB_COMPANION={fakes.companion}"
    )
    return 0


def simctl(folder: Path, arguments: Sequence[str]) -> int:
    """Handles `simctl [--set FOLDER] pbcopy UDID`: standard input becomes the clipboard.

    Handles `simctl spawn UDID defaults read com.apple.Accessibility KEY`: prints 1 if apps expose
    their accessibility tree, else 0.
    """
    words = list(arguments)
    if words[:1] == ["--set"]:
        folder, words = Path(words[1]), words[2:]
    if words[:1] == ["spawn"] and words[2:5] == ["defaults", "read", "com.apple.Accessibility"]:
        simulator = DeviceSet(folder).read(words[1])
        if not simulator.booted:
            print("Unable to lookup in current state: Shutdown", file=sys.stderr)
            return 149
        print(int(simulator.accessibility))
        return 0
    if len(words) != 2 or words[0] != "pbcopy":
        print(f"this simctl knows pbcopy and spawn only, not: {' '.join(words)}", file=sys.stderr)
        return 64
    with DeviceSet(folder).change(words[1]) as simulator:
        simulator.pasteboard = sys.stdin.buffer.read().decode("utf-8")
    return 0


def companion(args: argparse.Namespace) -> int:
    """Handles the options of idb_companion."""
    folder = args.idb_companion
    devices = DeviceSet(args.device_set_path or folder)
    if args.list is not None:
        fault = next_fault(folder, "list")
        time.sleep(delay(fault))
        if fault == "error":
            return 1
        for simulator in devices.all():
            print(simulator.description())
        return 0
    for name in COMMANDS:
        if (value := getattr(args, name)) is not None:
            return command(name, value, devices, args)
    if args.udid is None:
        print("nothing to do: give --list, a command or --udid", file=sys.stderr)
        return 1
    import asyncio

    devices.read(args.udid)
    fault = next_fault(folder, "start")
    if fault == "garbage":
        print("dyld: Library not loaded")
        return 1
    if fault == "error":
        print("FBSimulatorError: told to fail", file=sys.stderr)
        return 1
    time.sleep(delay(fault))
    asyncio.run(serve(folder, devices, args))
    return 0


def command(name: str, udid: str, devices: DeviceSet, args: argparse.Namespace) -> int:
    """Applies one change to the simulators and prints it."""
    fault = next_fault(args.idb_companion, name)
    if fault == "error":
        print(f"{name} of {udid} was told to fail", file=sys.stderr)
        return 1
    if fault == "hang" or name != "boot":
        time.sleep(delay(fault))
    if name == "create":
        simulator = Simulator(udid=new_udid(), name=udid.partition(",")[0])
        devices.put(simulator)
    elif name == "clone":
        if devices.read(udid).booted:
            print(
                f"Unable to clone a device in current state: {devices.read(udid).state}",
                file=sys.stderr,
            )
            return 1
        simulator = devices.clone(
            udid, DeviceSet(args.clone_destination_set) if args.clone_destination_set else devices
        )
    elif name == "delete":
        for target in [simulator.udid for simulator in devices.all()] if udid == "all" else [udid]:
            devices.delete(target)
        return 0
    elif name == "erase":
        simulator = devices.read(udid).as_new()
        devices.put(simulator)
    else:
        with devices.change(udid) as simulator:
            if name == "boot":
                simulator.boot(delay(fault))
            else:
                simulator.booted = False
    print(simulator.description())
    return 0


async def serve(folder: Path, devices: DeviceSet, args: argparse.Namespace) -> None:
    """Serves one simulator. It ends with the simulator if --terminate-offline is set, and always
    when the simulator's folder is removed.
    """
    import asyncio
    import json
    import socket

    from grpclib.server import Server

    from tests.support.ios.service import Service

    server = Server([Service(folder, devices, args.udid)])
    if args.grpc_domain_sock:
        if Path(args.grpc_domain_sock).exists():
            # Python would bind to a stale socket; not every server does.
            raise FileExistsError(f"bind: {args.grpc_domain_sock}: Address already in use")
        await server.start(path=args.grpc_domain_sock)
        print(json.dumps({"grpc_path": args.grpc_domain_sock}), flush=True)
    else:
        listening = socket.create_server(("127.0.0.1", int(args.grpc_port or 0)))
        port = listening.getsockname()[1]
        await server.start(sock=listening)
        print(json.dumps({"grpc_swift_port": port, "grpc_port": port}), flush=True)
    while folder.exists():
        await asyncio.sleep(ORPHAN_CHECK)
        if args.terminate_offline not in (None, "0") and not _alive(devices, args.udid):
            break
    server.close()
    await server.wait_closed()


def _alive(devices: DeviceSet, udid: str) -> bool:
    try:
        return devices.read(udid).booted
    except NoSimulatorError:
        return False


if __name__ == "__main__":
    sys.exit(main())
