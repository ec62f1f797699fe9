"""The fake phones below the real adb binary: what its users do changes state and screen, and faults
look as they really do.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from prill.errors import EnvironmentFailedError, UsageError
from tests.support.android import FakeAdb, write_avd, write_tools
from tests.support.android.phone import ADB_KEYBOARD, LATIN_IME
from tests.support.android.shell import UnreadableError, commands

ONE, TWO = "emulator-5554", "emulator-5556"
SETTINGS, SEARCH, NOTES, FIELD = (120, 300), (360, 300), (600, 300), (300, 266)


@dataclass(frozen=True)
class Phone:
    """One phone as a user of the adb binary has it."""

    program: str
    port: int
    serial: str

    def run(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
        command = [
            self.program,
            "-P",
            str(self.port),
            *(("-s", self.serial) if self.serial else ()),
            *arguments,
        ]
        return subprocess.run(command, capture_output=True, timeout=seconds, check=False)

    def shell(self, line: str) -> str:
        done = self.run("shell", line)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode()

    def tap(self, point: tuple[int, int]) -> None:
        self.shell(f"input tap {point[0]} {point[1]}")

    def screenshot(self) -> bytes:
        return self.run("exec-out", "screencap", "-p").stdout

    def tree(self) -> dict[str, dict[str, str]]:
        """The attributes of each widget by its text."""
        text = (
            self.run("exec-out", "uiautomator", "dump", "/dev/tty")
            .stdout.decode()
            .partition("</hierarchy>")[0]
        )
        return {
            node.attrib["text"]: node.attrib
            for node in ElementTree.fromstring(text + "</hierarchy>").iter("node")
        }


@pytest.fixture
def two(adb_path: str, adb_ports: list[int]) -> Iterator[FakeAdb]:
    with FakeAdb((ONE, TWO), adb_keyboard=True) as adb:
        adb_ports.append(adb.port)
        yield adb


@pytest.fixture
def phone(adb_path: str, two: FakeAdb) -> Phone:
    return Phone(adb_path, two.port, ONE)


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return condition()


def test_adb_lists_every_phone(phone: Phone) -> None:
    listed = Phone(phone.program, phone.port, "").run("devices").stdout.decode()
    assert listed.split("\n")[1:3] == [f"{ONE}\tdevice", f"{TWO}\tdevice"]


def test_adb_needs_serial_for_two_phones(phone: Phone) -> None:
    done = Phone(phone.program, phone.port, "").run("shell", "wm size")
    assert (done.returncode, done.stderr) == (1, b"error: more than one device/emulator\n")


def test_tap_changes_its_own_phone_only(phone: Phone, two: FakeAdb) -> None:
    before, tree = phone.screenshot(), phone.tree()
    phone.tap(SETTINGS)
    assert (two.phone(ONE).screen.page, two.phone(TWO).screen.page) == ("settings", "home")
    assert phone.screenshot() != before
    assert "Bluetooth" in phone.tree() and "Bluetooth" not in tree
    assert "com.android.settings/.Settings" in phone.shell("dumpsys window")


def test_tap_beside_everything_is_ignored(phone: Phone) -> None:
    before = phone.screenshot()
    phone.tap((360, 1500))
    assert phone.screenshot() == before


def test_switch_is_flipped_and_drawn(phone: Phone, two: FakeAdb) -> None:
    phone.tap(SETTINGS)
    still = [phone.screenshot() for _ in range(3)][-1]
    left, top, right, bottom = map(
        int, phone.tree()["Bluetooth"]["bounds"].replace("][", ",").strip("[]").split(",")
    )
    assert phone.tree()["Bluetooth"]["checked"] == "false"
    phone.tap(((left + right) // 2, (top + bottom) // 2))
    assert phone.tree()["Bluetooth"]["checked"] == "true"
    assert phone.screenshot() != still
    assert (
        two.phone(ONE).screen.toggles["Bluetooth"]
        and not two.phone(TWO).screen.toggles["Bluetooth"]
    )


def test_swipes_scroll_and_stop_at_ends(phone: Phone, two: FakeAdb) -> None:
    screen = two.phone(ONE).screen
    phone.shell("input swipe 360 1300 360 500 300")
    assert screen.page == "drawer" and "Calculator" in phone.tree()
    phone.shell("input swipe 360 500 360 1300 300")
    assert screen.page == "home"
    phone.tap(SETTINGS)
    assert "About phone" not in phone.tree()
    for _ in range(4):
        phone.shell("input swipe 360 1300 360 500 300")
    assert "About phone" in phone.tree() and "Wi-Fi" not in phone.tree()
    for _ in range(4):
        phone.shell("input swipe 360 500 360 1300 300")
    assert "Wi-Fi" in phone.tree()


def test_tiny_swipe_counts_as_tap(phone: Phone, two: FakeAdb) -> None:
    phone.shell("input swipe 360 300 365 305 100")
    assert two.phone(ONE).screen.page == "search"


def test_typing_and_keys_search_and_back(phone: Phone, two: FakeAdb) -> None:
    screen = two.phone(ONE).screen
    phone.tap(SEARCH)
    phone.shell("input text lost")
    assert screen.texts["query"] == "", "no field has the focus"
    phone.tap(FIELD)
    phone.shell("input text 'red%sshoess'")
    phone.shell("input keyevent KEYCODE_DEL")
    assert phone.tree()["red shoes"]["focused"] == "true"
    phone.shell("input keyevent 66")
    assert "Result 1 for red shoes" in phone.tree()
    phone.shell("input keyevent BACK")
    assert screen.page == "search"
    phone.shell("input keyevent 3")
    assert screen.page == "home"


def test_control_a_selects_for_next_key(phone: Phone, two: FakeAdb) -> None:
    phone.tap(SEARCH)
    phone.tap(FIELD)
    phone.shell("input text cats")
    phone.shell("input keycombination 113 29")
    phone.shell("input text dogs")
    assert two.phone(ONE).screen.texts["query"] == "dogs"


def test_notes_added_by_button_and_enter(phone: Phone, two: FakeAdb) -> None:
    phone.tap(NOTES)
    phone.tap(FIELD)
    phone.shell("input text milk; input keyevent 66")
    phone.shell("input text eggs && input tap 650 266")
    assert two.phone(ONE).screen.notes == ["milk", "eggs"]


def test_unquoted_text_runs_as_a_command(phone: Phone, two: FakeAdb) -> None:
    phone.tap(SEARCH)
    phone.tap(FIELD)
    done = phone.run("shell", "input text fish;chips")
    assert (done.returncode, done.stderr) == (
        127,
        b"/system/bin/sh: chips: inaccessible or not found\n",
    )
    assert two.phone(ONE).screen.texts["query"] == "fish"


def test_input_text_refuses_non_ascii(phone: Phone, two: FakeAdb) -> None:
    phone.tap(SEARCH)
    phone.tap(FIELD)
    done = phone.run("shell", "input text 'größe'")
    assert done.returncode != 0 and b"NullPointerException" in done.stderr
    assert two.phone(ONE).screen.texts["query"] == ""


def test_adb_keyboard_types_any_text(phone: Phone, two: FakeAdb) -> None:
    phone.tap(SEARCH)
    phone.tap(FIELD)
    send = (
        "am broadcast -a ADB_INPUT_B64 --es msg "
        + base64.b64encode("größe 日本 😀".encode()).decode()
    )
    assert "result=0" in phone.shell(send)
    assert two.phone(ONE).screen.texts["query"] == "", (
        "whether anybody heard the broadcast cannot be seen from its answer"
    )
    assert phone.shell("settings get secure default_input_method").strip() == LATIN_IME
    assert ADB_KEYBOARD not in phone.shell("ime list -s") and ADB_KEYBOARD in phone.shell(
        "ime list -s -a"
    )
    assert phone.run("shell", f"ime set {ADB_KEYBOARD}").returncode != 0, "it is not enabled yet"
    phone.shell(f"ime enable {ADB_KEYBOARD}")
    phone.shell(f"ime set {ADB_KEYBOARD}")
    phone.shell(send)
    assert two.phone(ONE).screen.texts["query"] == "größe 日本 😀"
    assert "größe 日本 😀" in phone.tree()


def test_adb_keyboard_needs_its_switch(adb_path: str, fake_adb: FakeAdb) -> None:
    phone = Phone(adb_path, fake_adb.port, "")
    assert ADB_KEYBOARD not in phone.shell("ime list -s -a")
    assert phone.run("shell", f"ime enable {ADB_KEYBOARD}").returncode != 0


def test_screenshots_differ_for_set_frames(adb_path: str, adb_ports: list[int]) -> None:
    with FakeAdb(frames=3) as adb:
        adb_ports.append(adb.port)
        phone = Phone(adb_path, adb.port, "")
        assert phone.screenshot() == phone.screenshot()
        phone.tap(SETTINGS)
        frames = [phone.screenshot() for _ in range(6)]
        assert len(set(frames)) == 4 and len(set(frames[3:])) == 1


def test_screenshot_size_matches_wm_size(phone: Phone, tmp_path: Path) -> None:
    assert phone.shell("wm size") == "Physical size: 720x1600\n"
    assert Image.open(io.BytesIO(phone.screenshot())).size == (720, 1600)
    phone.shell("screencap -p /sdcard/s.png")
    assert phone.run("pull", "/sdcard/s.png", str(tmp_path / "s.png")).returncode == 0
    assert (tmp_path / "s.png").read_bytes() == phone.screenshot()
    assert phone.shell("uiautomator dump") == "UI hierchary dumped to: /sdcard/window_dump.xml\n"
    assert "<hierarchy" in phone.shell("cat /sdcard/window_dump.xml")
    assert phone.run("pull", "/sdcard/none", str(tmp_path / "none")).returncode != 0


def test_files_are_pushed_and_pulled(phone: Phone, tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (tmp_path / "a").write_bytes(content)
    assert phone.run("push", str(tmp_path / "a"), "/sdcard/a").returncode == 0
    assert phone.run("pull", "/sdcard/a", str(tmp_path / "b")).returncode == 0
    assert (tmp_path / "b").read_bytes() == content


def test_apps_open_by_package_and_intent(phone: Phone, two: FakeAdb) -> None:
    screen = two.phone(ONE).screen
    screen.notes.append("old")
    phone.shell("monkey -p com.example.notes 1")
    assert screen.page == "notes"
    assert phone.shell("pm clear com.example.notes") == "Success\n"
    assert (screen.page, screen.notes) == ("home", [])
    phone.shell("am start -a android.intent.action.VIEW -d https://example.org/x")
    assert "This is https://example.org/x" in phone.tree()
    assert phone.run("shell", "am start -n com.none/.Main").returncode != 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("input text a b", [["input", "text", "a", "b"]]),
        ("input text 'a b'\\''c'", [["input", "text", "a b'c"]]),
        ('echo "a $HOME \\$b \\x"', [["echo", "a  $b \\x"]]),
        ("a; b && c|d", [["a"], ["b"], ["c"], ["d"]]),
        ("a 2>/dev/null > /sdcard/x b 2>&1", [["a", "b"]]),
        ("input text ''a\\&b''", [["input", "text", "a&b"]]),
        ("echo ''", [["echo", ""]]),
        ("", []),
    ],
)
def test_shell_splits_lines_as_a_shell(line: str, words: list[list[str]]) -> None:
    assert [command.words for command in commands(line)] == words


@pytest.mark.parametrize("line", ["echo 'a", 'echo "a', "echo (a)", "echo `id`"])
def test_shell_refuses_unrunnable_lines(line: str) -> None:
    with pytest.raises(UnreadableError):
        commands(line)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("offline", b"device offline"), ("lost", b"device 'emulator-5554' not found")],
)
def test_gone_phone_fails_commands_alone(
    phone: Phone, two: FakeAdb, fault: str, complaint: bytes
) -> None:
    two.fault(fault, ONE)
    done = phone.run("shell", "wm size")
    assert (done.returncode, done.stderr) == (1, b"error: " + complaint + b"\n")
    listed = Phone(phone.program, phone.port, "").run("devices").stdout.decode()
    assert (f"{ONE}\toffline" in listed, ONE in listed) == (fault == "offline", fault == "offline")
    assert Phone(phone.program, phone.port, TWO).shell("echo here") == "here\n"
    two.fault("none", ONE)
    assert phone.shell("echo back") == "back\n"


def test_gone_phone_ends_running_command(phone: Phone, two: FakeAdb) -> None:
    command = [phone.program, "-P", str(phone.port), "-s", ONE, "shell", "sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        assert eventually(lambda: "sleep 600" in two.phone(ONE).shells)
        two.fault("lost", ONE)
        running.wait(60)  # adb 29 then says 0, as if all were well


def test_hanging_screenshot_hangs_alone(phone: Phone, two: FakeAdb) -> None:
    two.fault("hang", ONE)
    with pytest.raises(subprocess.TimeoutExpired):
        phone.run("exec-out", "screencap", "-p", seconds=1)
    assert phone.shell("echo alive") == "alive\n"


def test_frozen_phone_answers_nothing(phone: Phone, two: FakeAdb) -> None:
    two.fault("freeze", ONE)
    with pytest.raises(subprocess.TimeoutExpired):
        phone.run("shell", "echo", seconds=1)
    assert Phone(phone.program, phone.port, TWO).shell("echo here") == "here\n"


def test_restless_screen_never_rests(phone: Phone, two: FakeAdb) -> None:
    two.fault("restless", ONE)
    assert len({phone.screenshot() for _ in range(5)}) == 5
    assert b"could not get idle state" in phone.run("shell", "uiautomator dump").stderr


def test_wrong_size_is_half_the_right_one(phone: Phone, two: FakeAdb) -> None:
    two.fault("wrong-size", ONE)
    assert Image.open(io.BytesIO(phone.screenshot())).size == (360, 800)
    assert phone.shell("wm size") == "Physical size: 720x1600\n"


def test_slow_boot_ends_and_endless_stays(phone: Phone, two: FakeAdb) -> None:
    two.fault("slow-boot", ONE)
    two.fault("never-boots", TWO)
    assert phone.run("shell", "input tap 1 1").returncode == 20
    answers = [phone.shell("getprop sys.boot_completed").strip() for _ in range(6)]
    assert answers[0] == "" and answers[-1] == "1"
    phone.tap(SETTINGS)
    late = Phone(phone.program, phone.port, TWO)
    assert {late.shell("getprop sys.boot_completed").strip() for _ in range(10)} == {""}


def test_dropped_connections_until_healed(phone: Phone, two: FakeAdb) -> None:
    two.fault("adb-down")
    done = phone.run("devices")
    assert done.returncode == 1 and b"protocol fault" in done.stderr
    two.fault("none")
    assert phone.shell("echo back") == "back\n"


def test_wait_for_device_until_it_comes(phone: Phone, two: FakeAdb) -> None:
    command = [phone.program, "-P", str(phone.port), "-s", "emulator-5558", "wait-for-device"]
    with subprocess.Popen(command) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        two.make("emulator-5558")
        assert waiting.wait(60) == 0


def test_control_port_sets_faults(two: FakeAdb) -> None:
    def ask(method: str, path: str) -> dict[str, dict[str, dict[str, object]]]:
        request = urllib.request.Request(two.control_url + path, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            reply: dict[str, dict[str, dict[str, object]]] = json.load(answer)
            return reply

    two.phone(TWO).screen.open("notes")
    assert ask("GET", "/state")["phones"][TWO]["page"] == "notes"
    assert ask("POST", f"/fault/hang/{ONE}")["phones"][ONE]["fault"] == "hang"
    assert two.phone(TWO).fault == "none"
    assert ask("POST", "/reset")["phones"][TWO]["page"] == "home"
    assert two.phone(ONE).fault == "none"
    for path in ("/fault/tired", "/fault/hang/emulator-1", "/nonsense"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask("POST", path)
        assert refused.value.code == 400
        refused.value.close()


def test_impossible_request_refused_at_once(two: FakeAdb) -> None:
    with pytest.raises(UsageError, match="emulator-5554"):
        FakeAdb(("phone",))
    with pytest.raises(UsageError, match="already"):
        two.make(ONE)
    with pytest.raises(UsageError, match="never-boots"):
        two.fault("tired")
    with pytest.raises(EnvironmentFailedError, match="does not start"), FakeAdb(port=two.port):
        pass


def test_fifty_servers_leave_nothing_behind(adb_path: str) -> None:
    def handles() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if os.path.isdir("/proc/self/fd") else 0

    for number in range(50):
        with FakeAdb((ONE, TWO)) as adb:
            ports = [adb.port, adb.control_port]
            if number < 3:
                phone = Phone(adb_path, adb.port, ONE)
                ports.append(int(phone.run("forward", "tcp:0", "tcp:6790").stdout))
                phone.screenshot()
            with socket.create_connection(("127.0.0.1", adb.port)) as idle:
                idle.sendall(b"000c")
        # At once: later, a port may be another process's.
        for port in ports:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
        if number == 3:
            before = handles()
    adb.close()
    assert handles() <= before
    assert "prill-fake-adb" not in {thread.name for thread in threading.enumerate()}


def test_program_ends_with_its_parent(adb_path: str, adb_ports: list[int]) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.support.android",
        "--until-eof",
        "--frames",
        "0",
        ONE,
        TWO,
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        hint = program.stdout.readline().split()
        adb_ports.append(int(hint[2]))
        assert Phone(adb_path, int(hint[2]), TWO).shell("echo here") == "here\n"
        program.stdin.close()
        assert program.wait(60) == 0


def free_even_port() -> int:
    """A console port: the emulator wants an even one. Linux gives outgoing connections even ones
    too, above these.
    """
    while True:
        port = random.randrange(20000, 32000, 2)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def test_console_ends_its_phone(adb_path: str, adb_ports: list[int]) -> None:
    serial = f"emulator-{free_even_port()}"
    with FakeAdb((serial,), consoles=True) as adb:
        adb_ports.append(adb.port)
        assert (
            Phone(adb_path, adb.port, serial).run("emu", "kill").stdout
            == b"OK: killing emulator, bye bye\r\n"
        )
        assert eventually(lambda: adb.phones == ())


@dataclass
class Sdk:
    """An Android SDK with the fake emulator, a folder of AVDs, and the fake adb server that its
    phones go to.
    """

    adb: FakeAdb
    program: str
    home: Path
    avds: Path
    started: list[subprocess.Popen[str]]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "ANDROID_AVD_HOME": str(self.avds)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.home / "emulator" / "emulator"), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], Phone]:
        port = free_even_port()
        command = [
            str(self.home / "emulator" / "emulator"),
            *arguments,
            "-port",
            str(port),
            "-no-window",
            "-no-audio",
        ]
        self.started.append(
            subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, text=True)
        )
        phone = Phone(self.program, self.adb.port, f"emulator-{port}")
        assert phone.run("wait-for-device").returncode == 0
        return self.started[-1], phone

    def clone(self, name: str) -> str:
        """A copy of the AVD called base, as a user would make it."""
        shutil.copytree(self.avds / "base.avd", self.avds / f"{name}.avd")
        (self.avds / f"{name}.ini").write_text(f"path={self.avds / name}.avd\n", encoding="utf-8")
        return name


@pytest.fixture
def sdk(adb_path: str, adb_ports: list[int], tmp_path: Path) -> Iterator[Sdk]:
    with FakeAdb(()) as adb:
        adb_ports.append(adb.port)
        write_avd(tmp_path / "avd", "base", size=(540, 1200))
        sdk = Sdk(
            adb,
            adb_path,
            write_tools(tmp_path / "sdk", adb.control_url, adb=adb_path),
            tmp_path / "avd",
            [],
        )
        yield sdk
    for program in sdk.started:
        assert program.wait(60) is not None, "emulators end with their server"


def test_emulator_brings_and_takes_its_phone(sdk: Sdk) -> None:
    program, phone = sdk.start("-avd", "base")
    assert phone.shell("wm size") == "Physical size: 540x1200\n"
    assert phone.run("emu", "avd", "name").stdout == b"base\r\nOK\r\n"
    assert phone.run("emu", "kill").returncode == 0
    assert program.wait(60) == 0
    assert eventually(lambda: sdk.adb.phones == ())
    assert b"not found" in phone.run("shell", "wm size").stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_phone_goes_when_emulator_ends(sdk: Sdk, number: signal.Signals) -> None:
    program, _ = sdk.start("-avd", "base")
    program.send_signal(number)
    assert program.wait(60) == (0 if number == signal.SIGTERM else -number)
    assert eventually(lambda: sdk.adb.phones == ())


def test_emulator_refuses_like_the_real_one(sdk: Sdk) -> None:
    assert sdk.run("-list-avds").stdout == "base\n"
    unknown = sdk.run("-avd", "nope", "-no-window")
    assert unknown.returncode == 1 and "Unknown AVD name [nope], use -list-avds" in unknown.stderr
    assert sdk.run("-avd", "base", "-headless").stderr.startswith(
        "ERROR   | unknown option: -headless"
    )
    assert "No AVD specified" in sdk.run("-no-window").stderr
    _, phone = sdk.start("-avd", "base")
    again = sdk.run("-avd", "base")
    assert again.returncode == 1 and "Running multiple emulators with the same AVD" in again.stderr
    taken = sdk.run("-avd", sdk.clone("other"), "-port", phone.serial.partition("-")[2])
    assert taken.returncode == 1 and "is taken" in taken.stderr


def test_clones_keep_nothing_in_common(sdk: Sdk) -> None:
    first, phone = sdk.start("-avd", sdk.clone("first"))
    phone.shell("am start -n com.example.notes/.NotesActivity")
    phone.shell("input tap 100 200; input text milk; input keyevent 66")
    assert sdk.adb.phone(phone.serial).screen.notes == ["milk"]
    phone.run("emu", "kill")
    first.wait(60)

    _, other = sdk.start("-avd", sdk.clone("second"))
    assert sdk.adb.phone(other.serial).screen.notes == []
    again, phone = sdk.start("-avd", "first")
    assert sdk.adb.phone(phone.serial).screen.notes == ["milk"], "the same AVD still has it"
    phone.run("emu", "kill")
    again.wait(60)
    _, wiped = sdk.start("-avd", "first", "-wipe-data")
    assert sdk.adb.phone(wiped.serial).screen.notes == []


def test_read_only_emulator_keeps_nothing(sdk: Sdk) -> None:
    one, phone = sdk.start("-avd", "base", "-read-only")
    _, other = sdk.start("-avd", "base", "-read-only")
    phone.shell("am start -n com.android.settings/.Settings")
    phone.shell("input tap 200 300")
    assert sdk.adb.phone(phone.serial).screen.toggles != sdk.adb.phone(other.serial).screen.toggles
    phone.run("emu", "kill")
    one.wait(60)
    _, after = sdk.start("-avd", "base")
    assert sdk.adb.phone(after.serial).screen.toggles == sdk.adb.phone(other.serial).screen.toggles


def test_emulator_phone_gets_preset_fault(sdk: Sdk) -> None:
    sdk.adb.start_fault = "never-boots"
    _, phone = sdk.start("-avd", "base")
    assert phone.shell("getprop sys.boot_completed").strip() == ""
