"""The shell of a fake phone. It answers the commands that adb users and Appium send, with the
output of a real phone.

It parses a line as a shell does (quotes, backslashes, variables and command separators), so that
missing quotes have an effect: `input text a;b` types `a` and then looks for a program called `b`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.support.android import keyboard, touch
from tests.support.android.keyboard import adb_keyboard
from tests.support.android.phone import ADB_KEYBOARD, APPIUM_SETTINGS, PATIENCE, UIA2, Phone
from tests.support.android.screen import COMPONENTS, Screen
from tests.support.android.touch import NOTHING, Answer, failed, output

RUNNER = f"{UIA2}.test/androidx.test.runner.AndroidJUnitRunner"
# These commands need services that start last. They fail until the boot is complete.
LATE = (
    "input", "wm", "am", "pm", "cmd", "screencap", "uiautomator", "ime", "settings", "dumpsys",
    "monkey",
)  # fmt: skip
Program = Callable[[Phone, list[str]], Answer | Awaitable[Answer]]
Joint = Literal["", "&&", "||", "|"]
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


class UnreadableError(ValueError):
    """Raised for a line that the shell cannot parse."""


@dataclass(slots=True)
class Command:
    """The words of one command, and the operator that joins it to the previous one."""

    words: list[str] = field(default_factory=list)
    joint: Joint = ""


def commands(line: str) -> list[Command]:
    """Returns the commands of a line. Redirections are dropped with their file; unset variables are
    empty. Raises UnreadableError.
    """
    parsed, drop, at = [Command()], False, 0
    word: str | None = None

    def finish() -> None:
        nonlocal word, drop
        if word is not None and not drop:
            parsed[-1].words.append(word)
        if word is not None:
            drop = False
        word = None

    while at < len(line):
        sign = line[at]
        at += 1
        if sign in " \t":
            finish()
        elif sign == "'":
            end = line.find("'", at)
            if end < 0:
                raise UnreadableError("no closing quote")
            word, at = (word or "") + line[at:end], end + 1
        elif sign == '"':
            inside, at = _double_quoted(line, at)
            word = (word or "") + inside
        elif sign == "\\":
            word, at = (word or "") + line[at : at + 1], at + 1
        elif sign == "$":
            at, word = _after_name(line, at), word or ""
        elif sign in "()`":
            raise UnreadableError(f"syntax error: unexpected '{sign}'")
        elif sign in "<>":
            if word is not None and word.isdecimal():
                word = None
            finish()
            at += line[at : at + 1] in (">", "&")
            drop = True
        elif sign in ";\n&|":
            finish()
            twice = sign in "&|" and line[at : at + 1] == sign
            at += twice
            joints: dict[str, Joint] = {"&&": "&&", "||": "||", "|": "|"}
            parsed.append(Command(joint=joints.get(sign * (2 if twice else 1), "")))
        else:
            word = (word or "") + sign
    finish()
    return [command for command in parsed if command.words]


def _double_quoted(line: str, at: int) -> tuple[str, int]:
    text = ""
    while at < len(line) and line[at] != '"':
        if line[at] == "\\" and line[at + 1 : at + 2] in tuple('"\\$`'):
            text, at = text + line[at + 1], at + 2
        elif line[at] == "$":
            at = _after_name(line, at + 1)
        else:
            text, at = text + line[at], at + 1
    if at >= len(line):
        raise UnreadableError("no closing quote")
    return text, at + 1


def _after_name(line: str, at: int) -> int:
    while at < len(line) and line[at] in _NAME:
        at += 1
    return at


# Apps and services: am, pm, cmd, dumpsys and monkey


async def am(phone: Phone, words: list[str]) -> Answer:
    """Handles `am`: start, stop, broadcasts, and the instrumentation, which runs as long as the
    UiAutomator2 server.
    """
    kind, *rest = words or [""]
    if kind == "instrument":
        return await _instrument(phone)
    if kind == "broadcast":
        return _broadcast(phone, _options(rest))
    if kind == "force-stop":
        phone.running.discard(rest[-1])
        if phone.screen.component.startswith(f"{rest[-1]}/"):
            phone.screen.go_home()
            phone.changed()
        return NOTHING
    if kind in ("start", "start-activity", "start-foreground-service"):
        return _start(phone, _options(rest))
    return failed(f"Unknown command: {kind}\n")


async def _instrument(phone: Phone) -> Answer:
    phone.sessions, phone.crashed = phone.sessions + 1, False
    number = phone.sessions
    phone.running.add(UIA2)
    try:
        while UIA2 in phone.running and phone.sessions == number and phone.state == "device":
            await asyncio.sleep(PATIENCE)
    finally:
        if phone.sessions == number:
            phone.running.discard(UIA2)
    if phone.crashed:
        return output(
            "INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n"
        )
    return output("INSTRUMENTATION_CODE: 0\n")


def _options(words: list[str]) -> dict[str, str]:
    """Returns the options of an intent; extras as `--es name`."""
    options, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        if word in ("--es", "--ei", "--ez") and len(rest) > 1:
            name, value = rest.pop(0), rest.pop(0)
            options[f"{word} {name}"] = value
        elif word in ("-a", "-d", "-n", "-c", "-p", "-f", "-t") and rest:
            options[word] = rest.pop(0)
        elif not word.startswith("-"):
            options["-n"] = word
    return options


def _start(phone: Phone, options: dict[str, str]) -> Answer:
    action, component = options.get("-a", ""), options.get("-n", "")
    package = component.partition("/")[0]
    if package == APPIUM_SETTINGS:
        phone.running.add(APPIUM_SETTINGS)
    elif action == "android.intent.action.VIEW" and "-d" in options:
        phone.screen.browse(options["-d"])
    elif options.get("-c") == "android.intent.category.HOME":
        phone.screen.go_home()
    elif action == "android.settings.SETTINGS":
        phone.screen.open("settings")
    elif not _open(phone.screen, package):
        return failed(f"Error type 3\nError: Activity class {{{component}}} does not exist.\n", 1)
    phone.changed()
    return output(f"Starting: Intent {{ {'act=' + action if action else 'cmp=' + component} }}\n")


def _open(screen: Screen, package: str) -> bool:
    for page, component in COMPONENTS.items():
        if component.partition("/")[0] == package:
            screen.open(page)
            return True
    return False


def _broadcast(phone: Phone, options: dict[str, str]) -> Answer:
    action = options.get("-a", "")
    result = "result=-1" if action.startswith(APPIUM_SETTINGS) else "result=0"
    if action == f"{APPIUM_SETTINGS}.clipboard.get":
        result += f', data="{base64.b64encode(phone.screen.clipboard.encode()).decode()}"'
    # The result of a broadcast does not show whether anyone received it. The keyboard must be the
    # active one.
    if phone.adb_keyboard and phone.ime == ADB_KEYBOARD:
        adb_keyboard(phone, action, options)
    return output(
        f"Broadcasting: Intent {{ act={action} flg=0x400000 }}\nBroadcast completed: {result}\n"
    )


def pm(phone: Phone, words: list[str]) -> Answer:
    """Handles the package manager command `pm`."""
    kind, package = " ".join(words[:2]), words[-1] if words else ""
    if kind == "list instrumentation":
        return output(f"instrumentation:{RUNNER} (target={UIA2})\n")
    if kind == "list packages":
        return output(
            "".join(
                f"package:{name} versionCode:{code}\n" for name, (_, code) in phone.packages.items()
            )
        )
    if kind.startswith("path"):
        return (
            output(f"package:/data/app/{package}/base.apk\n")
            if package in phone.packages
            else Answer(code=1)
        )
    if kind.startswith("clear"):
        return _clear(phone, package)
    return output("Success\n") if words[:1] in (["install"], ["uninstall"], ["grant"]) else NOTHING


def _clear(phone: Phone, package: str) -> Answer:
    if package not in phone.packages:
        return output("Failed\n")
    fresh, screen = Screen(phone.size), phone.screen
    if package == "com.android.settings":
        screen.toggles = fresh.toggles
    elif package == "com.example.notes":
        screen.notes, screen.texts["draft"] = [], ""
    elif package == "com.example.search":
        screen.texts["query"] = ""
    if screen.component.startswith(f"{package}/"):
        screen.go_home()
    phone.changed()
    return output("Success\n")


def cmd(phone: Phone, words: list[str]) -> Answer:
    """Handles service commands."""
    return pm(phone, words[1:]) if words[:1] == ["package"] else NOTHING


def dumpsys(phone: Phone, words: list[str]) -> Answer:
    """Handles `dumpsys` for the services that tools query."""
    service, rest = words[0] if words else "", words[1:]
    if service == "package" and rest and rest[0] in phone.packages:
        version, code = phone.packages[rest[0]]
        head = (
            f"Packages:\n  Package [{rest[0]}] (1):\n    userId=1\n    versionCode={code} "
            "minSdk=26 targetSdk=33\n"
        )
        return output(f"{head}    versionName={version}\n    installed=true\n")
    if service == "activity" and rest[:1] == ["services"]:
        return output("isForeground=true\n" if APPIUM_SETTINGS in phone.running else "")
    if service in ("window", "activity"):
        front = phone.screen.component
        lock = (
            "mShowingLockscreen=false mDreamingLockscreen=false isStatusBarKeyguard=false "
            "KeyguardShowing=false"
        )
        return output(
            f"  {lock}\n  mCurrentFocus=Window{{1 u0 {front}}}\n  mFocusedApp=ActivityRecord{{1 "
            f"u0 {front} t1}}\n"
        )
    if service == "input_method":
        return output(f"  mCurMethodId={phone.ime}\n  mInputShown=false mIsInputViewShown=false\n")
    return output(
        "mWakefulness=Awake\nmHoldingDisplaySuspendBlocker=true\n" if service == "power" else ""
    )


def monkey(phone: Phone, words: list[str]) -> Answer:
    """Handles `monkey -p PACKAGE 1`, which opens an app."""
    package = words[words.index("-p") + 1] if "-p" in words[:-1] else ""
    if not _open(phone.screen, package):
        return failed("** No activities found to run, monkey aborted.\n", 252)
    phone.changed()
    return output("Events injected: 1\n")


# A whole line, and the small commands


async def run(phone: Phone, line: str) -> Answer:
    """Returns the answer to one `adb shell` line. It waits as long as the command would run."""
    phone.shells.append(line)
    await phone.through(("freeze",))
    try:
        parts = commands(line)
    except UnreadableError as complaint:
        return failed(f"/system/bin/sh: {complaint}\n", 1)
    total = NOTHING
    for part in parts:
        if part.joint == "|" or (part.joint and (part.joint == "&&") != (total.code == 0)):
            continue
        answer = await _one(phone, part)
        total = Answer(total.out + answer.out, total.err + answer.err, answer.code)
    return total


async def _one(phone: Phone, command: Command) -> Answer:
    name, *rest = (
        command.words[1:] if command.words[0] == "exec" and command.words[1:] else command.words
    )
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
        return output(properties.get(words[0], "") + "\n")
    return output("".join(f"[{name}]: [{value}]\n" for name, value in properties.items()))


def _echo(phone: Phone, words: list[str]) -> Answer:
    return output(" ".join(words) + "\n")


def _cat(phone: Phone, words: list[str]) -> Answer:
    missing = [
        f"cat: {name}: No such file or directory\n" for name in words if name not in phone.files
    ]
    return Answer(
        b"".join(phone.files.get(name, b"") for name in words),
        "".join(missing).encode(),
        int(bool(missing)),
    )


def _ls(phone: Phone, words: list[str]) -> Answer:
    names = [word for word in words if not word.startswith("-")]
    listing = "".join(f"{name}\n" for name in names if name in phone.files)
    missing = "".join(
        f"ls: {name}: No such file or directory\n" for name in names if name not in phone.files
    )
    return Answer(listing.encode(), missing.encode(), int(bool(missing)))


def _rm(phone: Phone, words: list[str]) -> Answer:
    for name in words:
        phone.files.pop(name, None)
    return NOTHING


def _test(phone: Phone, words: list[str]) -> Answer:
    return NOTHING if len(words) > 1 and words[1] in phone.files else Answer(code=1)


def _pidof(phone: Phone, words: list[str]) -> Answer:
    running = any(name in word for word in words for name in phone.running)
    return output("4242\n") if running else Answer(code=1)


def _ps(phone: Phone, words: list[str]) -> Answer:
    return output(
        "USER PID NAME\n" + "".join(f"u0_a1 4242 {name}\n" for name in sorted(phone.running))
    )


async def _logcat(phone: Phone, words: list[str]) -> Answer:
    # The server writes the first line, for which Appium waits. The log then continues forever.
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
    "am": am,
    "pm": pm,
    "cmd": cmd,
    "dumpsys": dumpsys,
    "settings": keyboard.settings,
    "ime": keyboard.ime,
    "monkey": monkey,
    "wm": touch.wm,
    "input": touch.input_,
    "screencap": touch.screencap,
    "uiautomator": touch.uiautomator,
}
