"""The registry of environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prill.config.registry import Registry, RegistryEntry, list_options
from prill.protocols import Environment

ENVIRONMENTS = Registry(
    "environment",
    {
        "miniwob": RegistryEntry(
            "MiniWoB++ in the system's Chromium", "prill.emulators.miniwob.environment:MiniWoB"
        ),
        "webarena": RegistryEntry(
            "WebArena's tasks on its sites", "prill.emulators.webarena.environment:webarena"
        ),
        "webarena-infinity": RegistryEntry(
            "WebArena-Infinity's applications, on servers of their own",
            "prill.emulators.webarena_infinity.environment:WebArenaInfinity",
        ),
        "airline": RegistryEntry(
            "an airline's desk, with progress", "prill.papers.step.airline.environment:Airline"
        ),
        "web": RegistryEntry(
            "any web page in the system's Chromium",
            "prill.emulators.browser.environment:BrowserEnvironment",
        ),
        "browsergym": RegistryEntry(
            "tasks of BrowserGym, with its own rewards; BrowserGym is installed separately",
            "prill.emulators.browsergym.environment:BrowserGym",
        ),
        "mind2web": RegistryEntry(
            "recorded turns of Mind2Web and MT-Mind2Web, step by step",
            "prill.papers.mind2web.environment:Mind2Web",
        ),
        "android": RegistryEntry(
            "an Android device or emulator, through adb or Appium",
            "prill.emulators.android.environment:Android",
        ),
        "ios": RegistryEntry(
            "an iOS simulator, through idb", "prill.emulators.ios.environment:Ios"
        ),
    },
    "prill.environments",
    ("reset(task)", "step(action)", "close()"),
)


def make_environment(
    name: str, *, images: str | Path | None = None, lax: bool = False, **options: Any
) -> Environment:
    """Makes an environment by name, for example
    `make_environment("miniwob", images="out/images", settle=1.0)`.

    Args:
        name: A name, or `module:Object` or `file.py:Object` of your own.
        images: The folder for screenshots. An environment without a parameter `images` ignores it.
        lax: Read numbers and truth values from text, for the command line.
        **options: The environment's options.

    Returns:
        The environment, not started yet.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No environment has that name, or the object is not an environment.
    """
    if images is not None and "images" in list_options(ENVIRONMENTS.maker(name)):
        options["images"] = Path(images)
    return ENVIRONMENTS.make(name, options, lax=lax)  # type: ignore[no-any-return]
