"""Shell commands for apps and services: am, pm, cmd, dumpsys and monkey."""

from __future__ import annotations

import asyncio
import base64

from prill.fakes.android.answers import NOTHING, Answer, failed, said
from prill.fakes.android.keyboard import adb_keyboard
from prill.fakes.android.phone import ADB_KEYBOARD, APPIUM_SETTINGS, PATIENCE, UIA2, Phone
from prill.fakes.android.screen import Screen
from prill.fakes.android.widgets import COMPONENTS

RUNNER = f"{UIA2}.test/androidx.test.runner.AndroidJUnitRunner"


async def am(phone: Phone, words: list[str]) -> Answer:
    """Starts, stops, broadcasts, and the instrumentation: that one runs as long as the UiAutomator2 server lives."""
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
        return said("INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n")
    return said("INSTRUMENTATION_CODE: 0\n")


def _options(words: list[str]) -> dict[str, str]:
    """Options of an intent; extras as `--es name`."""
    found, left = {}, list(words)
    while left:
        word = left.pop(0)
        if word in ("--es", "--ei", "--ez") and len(left) > 1:
            name, value = left.pop(0), left.pop(0)
            found[f"{word} {name}"] = value
        elif word in ("-a", "-d", "-n", "-c", "-p", "-f", "-t") and left:
            found[word] = left.pop(0)
        elif not word.startswith("-"):
            found["-n"] = word
    return found


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
    return said(f"Starting: Intent {{ {'act=' + action if action else 'cmp=' + component} }}\n")


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
    # Whether anybody hears a broadcast cannot be seen from its result: the keyboard must be the one in use.
    if phone.adb_keyboard and phone.ime == ADB_KEYBOARD:
        adb_keyboard(phone, action, options)
    return said(f"Broadcasting: Intent {{ act={action} flg=0x400000 }}\nBroadcast completed: {result}\n")


def pm(phone: Phone, words: list[str]) -> Answer:
    """The package manager."""
    kind, package = " ".join(words[:2]), words[-1] if words else ""
    if kind == "list instrumentation":
        return said(f"instrumentation:{RUNNER} (target={UIA2})\n")
    if kind == "list packages":
        return said("".join(f"package:{name} versionCode:{code}\n" for name, (_, code) in phone.packages.items()))
    if kind.startswith("path"):
        return said(f"package:/data/app/{package}/base.apk\n") if package in phone.packages else Answer(code=1)
    if kind.startswith("clear"):
        return _clear(phone, package)
    return said("Success\n") if words[:1] in (["install"], ["uninstall"], ["grant"]) else NOTHING


def _clear(phone: Phone, package: str) -> Answer:
    if package not in phone.packages:
        return said("Failed\n")
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
    return said("Success\n")


def cmd(phone: Phone, words: list[str]) -> Answer:
    """Service commands."""
    return pm(phone, words[1:]) if words[:1] == ["package"] else NOTHING


def dumpsys(phone: Phone, words: list[str]) -> Answer:
    """The states of services, as far as tools look at them."""
    service, rest = words[0] if words else "", words[1:]
    if service == "package" and rest and rest[0] in phone.packages:
        version, code = phone.packages[rest[0]]
        head = f"Packages:\n  Package [{rest[0]}] (1):\n    userId=1\n    versionCode={code} minSdk=26 targetSdk=33\n"
        return said(f"{head}    versionName={version}\n    installed=true\n")
    if service == "activity" and rest[:1] == ["services"]:
        return said("isForeground=true\n" if APPIUM_SETTINGS in phone.running else "")
    if service in ("window", "activity"):
        front = phone.screen.component
        lock = "mShowingLockscreen=false mDreamingLockscreen=false isStatusBarKeyguard=false KeyguardShowing=false"
        return said(f"  {lock}\n  mCurrentFocus=Window{{1 u0 {front}}}\n  mFocusedApp=ActivityRecord{{1 u0 {front} t1}}\n")
    if service == "input_method":
        return said(f"  mCurMethodId={phone.ime}\n  mInputShown=false mIsInputViewShown=false\n")
    return said("mWakefulness=Awake\nmHoldingDisplaySuspendBlocker=true\n" if service == "power" else "")


def monkey(phone: Phone, words: list[str]) -> Answer:
    """`monkey -p PACKAGE 1` opens an app."""
    package = words[words.index("-p") + 1] if "-p" in words[:-1] else ""
    if not _open(phone.screen, package):
        return failed("** No activities found to run, monkey aborted.\n", 252)
    phone.changed()
    return said("Events injected: 1\n")
