"""The phones of `prill rollout`: Android devices and iOS simulators."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prill.commands.options import positive
from prill.commands.rollout.cases import add_task_options, read_tasks
from prill.commands.rollout.environments import EnvironmentKind, Setting, task_setting
from prill.emulators.registry import make_environment
from prill.errors import UsageError


def _android_options(group: argparse._ArgumentGroup) -> None:
    add_task_options(group, "app:com.example, app:com.example/.Main, or a web address")
    group.add_argument("--device", metavar="SERIAL,…", help="running devices, one a worker (default: the only one there is)")
    group.add_argument("--avd", metavar="NAME", help="a virtual device: every episode gets a fresh copy of it")
    group.add_argument("--snapshot", metavar="NAME", help="with --avd: boot once, and go back to this snapshot each time")
    group.add_argument("--window", action="store_true", help="with --avd: show the screens on the desktop")
    group.add_argument("--backend", choices=["adb", "appium"], default="adb", help="adb (default) or an Appium 3 server")
    group.add_argument(
        "--appium-url", default="http://127.0.0.1:4723", metavar="URL", help="the Appium server (default http://127.0.0.1:4723)"
    )
    group.add_argument("--adb-port", type=positive, metavar="N", help="port of the adb server ($ANDROID_ADB_SERVER_PORT, 5037)")


def _android(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    if args.avd and args.device:
        raise UsageError("give either --avd or --device")
    options = {
        "avd": args.avd,
        "snapshot": args.snapshot,
        "window": args.window,
        "backend": args.backend,
        "appium_url": args.appium_url,
        "adb_port": args.adb_port,
    }
    devices = [None] * (args.workers or 1) if args.avd else _one_a_worker(args, args.device, "--device", assigned)
    environments = [
        make_environment("android", images=images, lax=True, **{**options, "device": device, **assigned}) for device in devices
    ]
    fingerprint = {"avd": args.avd, "snapshot": args.snapshot, "backend": args.backend, **assigned}
    leftovers = None if args.avd else "the device keeps what an earlier attempt changed; with a virtual device it would not"
    return task_setting(environments, read_tasks(args, "android"), fingerprint, patience=3, leftovers=leftovers)


def _ios_options(group: argparse._ArgumentGroup) -> None:
    add_task_options(group, "app:com.apple.Preferences, or a web address")
    group.add_argument("--simulator", metavar="NAME,…", help="name or UDID (default: the only one there is)")
    group.add_argument("--companion", metavar="FILE", help="idb_companion ($PRILL_IDB_COMPANION, else on the PATH)")
    group.add_argument("--simctl", metavar="FILE", help="simctl, for text beyond the US keyboard (default: Xcode's)")
    group.add_argument(
        "--restore", choices=["clone", "erase", "none"], default="clone", help="how an episode begins (default: on a clone)"
    )
    group.add_argument(
        "--swipe-up", choices=["right", "random"], default="right", help="a swipe up at home: right (default), or either way"
    )


def _ios(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    options = {"restore": args.restore, "swipe_up": args.swipe_up, **assigned}
    if options["restore"] == "clone" and "," not in (args.simulator or ""):
        # Every worker has copies of its own of the one simulator.
        simulators = [args.simulator] * (args.workers or 1)
    else:
        simulators = _one_a_worker(args, args.simulator, "--simulator", assigned)
    tools = {"companion": args.companion, "simctl": args.simctl}
    environments = [
        make_environment("ios", images=images, lax=True, **{**tools, "simulator": simulator, **options})
        for simulator in simulators
    ]
    # A clone is of what somebody prepared; erased, one simulator is as good as another.
    fingerprint = {"simulator": args.simulator if options["restore"] == "clone" else None, **options}
    leftovers = "the simulator keeps what an earlier attempt changed" if options["restore"] == "none" else None
    return task_setting(environments, read_tasks(args, "ios"), fingerprint, patience=3, leftovers=leftovers)


def _one_a_worker(args: argparse.Namespace, named: str | None, option: str, assigned: Mapping[str, Any]) -> list[str | None]:
    """The devices that are named, as many as there are workers; None for the only one there is."""
    if option.removeprefix("--") in assigned:
        raise UsageError(f"every worker needs a device of its own: name them with {option}")
    names: list[str | None] = [name.strip() for name in named.split(",")] if named else [None]
    if args.workers and args.workers > len(names):
        raise UsageError(f"--workers {args.workers}: every worker needs a device of its own, so name as many with {option}")
    if len(set(names)) < len(names):
        raise UsageError(f"{option} {named}: the same device stands there twice")
    return names[: args.workers]


# The paper's limits: 20 actions on Android (arXiv 2404.06474, section 4.3), 10 on iOS (its code).
PHONES = {
    "android": EnvironmentKind(
        "Example: prill rollout android --avd Pixel_4_API_33 --tasks android --policy cogagent --model M -o runs/c",
        "android",
        20,
        _android_options,
        _android,
    ),
    "ios": EnvironmentKind(
        "Example: prill rollout ios --simulator 'iPhone 14' --tasks ios_eval --policy cogagent --model M -o runs/d",
        "ios",
        10,
        _ios_options,
        _ios,
    ),
}
