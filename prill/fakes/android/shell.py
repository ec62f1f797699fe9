"""What a phone's shell answers: the commands that adb users and Appium send, each as a real phone words it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from prill.fakes.android import activity, keyboard, touch
from prill.fakes.android.answers import NOTHING, Answer, failed, said
from prill.fakes.android.phone import PATIENCE, Phone
from prill.fakes.android.words import Command, Unreadable, commands

Program = Callable[[Phone, list[str]], Answer | Awaitable[Answer]]
# These need services that come up last: before the boot is done they are not there.
LATE = ("input", "wm", "am", "pm", "cmd", "screencap", "uiautomator", "ime", "settings", "dumpsys", "monkey")


async def run(phone: Phone, line: str) -> Answer:
    """The answer to one `adb shell` line; waits as long as the command would run."""
    phone.shells.append(line)
    await phone.through(("freeze",))
    try:
        parts = commands(line)
    except Unreadable as complaint:
        return failed(f"/system/bin/sh: {complaint}\n", 1)
    total = NOTHING
    for part in parts:
        if part.joint == "|" or (part.joint and (part.joint == "&&") != (total.code == 0)):
            continue
        answer = await _one(phone, part)
        total = Answer(total.out + answer.out, total.err + answer.err, answer.code)
    return total


async def _one(phone: Phone, command: Command) -> Answer:
    name, *rest = command.words[1:] if command.words[0] == "exec" and command.words[1:] else command.words
    program = PROGRAMS.get(name.rpartition("/")[2])
    if program is None:
        return failed(f"/system/bin/sh: {name}: inaccessible or not found\n", 127)
    if name in LATE and phone.fault in ("slow-boot", "never-boots"):
        return failed(f"cmd: Can't find service: {name}\n", 20)
    answer = program(phone, rest)
    return answer if isinstance(answer, Answer) else await answer


def _getprop(phone: Phone, words: list[str]) -> Answer:
    asked = not words or words[0] in ("sys.boot_completed", "dev.bootcomplete", "init.svc.bootanim")
    booted = "1" if not asked or phone.booted() else ""
    properties = {
        "ro.build.version.sdk": str(phone.api_level),
        "ro.build.version.release": "13",
        "ro.product.manufacturer": "Prill",
        "ro.product.model": "Fake Phone",
        "ro.product.cpu.abi": "x86_64",
        "ro.kernel.qemu": "1",
        "ro.boot.qemu.avd_name": phone.avd,
        "persist.sys.locale": "en-US",
        "persist.sys.timezone": "UTC",
        "sys.boot_completed": booted,
        "dev.bootcomplete": booted,
        "init.svc.bootanim": "stopped" if booted else "running",
    }
    if words:
        return said(properties.get(words[0], "") + "\n")
    return said("".join(f"[{name}]: [{value}]\n" for name, value in properties.items()))


def _echo(phone: Phone, words: list[str]) -> Answer:
    return said(" ".join(words) + "\n")


def _cat(phone: Phone, words: list[str]) -> Answer:
    missing = [f"cat: {name}: No such file or directory\n" for name in words if name not in phone.files]
    return Answer(b"".join(phone.files.get(name, b"") for name in words), "".join(missing).encode(), int(bool(missing)))


def _ls(phone: Phone, words: list[str]) -> Answer:
    names = [word for word in words if not word.startswith("-")]
    found = "".join(f"{name}\n" for name in names if name in phone.files)
    missing = "".join(f"ls: {name}: No such file or directory\n" for name in names if name not in phone.files)
    return Answer(found.encode(), missing.encode(), int(bool(missing)))


def _rm(phone: Phone, words: list[str]) -> Answer:
    for name in words:
        phone.files.pop(name, None)
    return NOTHING


def _test(phone: Phone, words: list[str]) -> Answer:
    return NOTHING if len(words) > 1 and words[1] in phone.files else Answer(code=1)


def _pidof(phone: Phone, words: list[str]) -> Answer:
    known = any(name in word for word in words for name in phone.running)
    return said("4242\n") if known else Answer(code=1)


def _ps(phone: Phone, words: list[str]) -> Answer:
    return said("USER PID NAME\n" + "".join(f"u0_a1 4242 {name}\n" for name in sorted(phone.running)))


async def _logcat(phone: Phone, words: list[str]) -> Answer:
    # The first line is written by the server, for Appium waits for it; then the log goes on for ever.
    while not set(words) & {"-c", "-d"} and phone.state == "device":
        await asyncio.sleep(PATIENCE)
    return NOTHING


async def _sleep(phone: Phone, words: list[str]) -> Answer:
    await asyncio.sleep(float(words[0]) if words else 0)
    return NOTHING


PROGRAMS: dict[str, Program] = {
    "getprop": _getprop,
    "echo": _echo,
    "cat": _cat,
    "ls": _ls,
    "rm": _rm,
    "[": _test,
    "test": _test,
    "pidof": _pidof,
    "pgrep": _pidof,
    "ps": _ps,
    "logcat": _logcat,
    "sleep": _sleep,
    **{name: lambda phone, words: NOTHING for name in ("true", "export", "appops", "svc", "sync")},
    "am": activity.am,
    "pm": activity.pm,
    "cmd": activity.cmd,
    "dumpsys": activity.dumpsys,
    "settings": keyboard.settings,
    "ime": keyboard.ime,
    "monkey": activity.monkey,
    "wm": touch.wm,
    "input": touch.input_,
    "screencap": touch.screencap,
    "uiautomator": touch.uiautomator,
}
