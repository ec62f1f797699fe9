"""Generated code: what it can compute, that nothing gets out, and that each layer holds without the
others.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prill.papers.synapse import jail
from prill.papers.synapse.jail import MAX_CALLS, MAX_CHARS
from prill.papers.synapse.sandbox import CodeFailedError, _calls, _record, run_code

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the filter of system calls is that of Linux"
)
NAMES = {"state": "<p>a <b>b</b></p>", "task": "t"}


async def failure(code: str) -> str:
    with pytest.raises(CodeFailedError) as failed:
        await run_code(code, NAMES)
    return str(failed.value)


async def test_code_computes_from_the_page() -> None:
    parser = (
        "import re, html\nfrom html.parser import HTMLParser\n"
        "class Words(HTMLParser):\n"
        "    def __init__(self):\n        super().__init__()\n        self.words = []\n"
        "    def handle_data(self, data):\n        self.words.append(data)\n"
        "words = Words()\nwords.feed(state)\nprint('ignored')\n"
        "obs = ''.join(words.words) + re.search('<b>(.)', state).group(1) + task"
    )
    assert await run_code(parser, NAMES) == "a bbt"


@pytest.mark.parametrize(
    "calls",
    [
        [["open", "x"]],
        [["type"]],
        [["type", 1]],
        [["type", "x", "y"]],
        ["type"],
        [["type", "\ud800"]],
        [["type", "x"]] * (MAX_CALLS + 1),
        [["type", "x" * 200]] * 150,
        [["type", "x" * MAX_CHARS], ["type", "x"]],
    ],
)
def test_forged_calls_come_to_nothing(calls: list[object]) -> None:
    with pytest.raises(CodeFailedError):
        _calls(_record(json.dumps({"calls": calls}).encode(), 0))


async def test_a_long_result_is_refused() -> None:
    assert f"{MAX_CHARS} are allowed" in await failure(f"obs = 'x' * {MAX_CHARS + 1}")
    assert "more than" in await failure("obs = 'x' * 10**7")
    assert len(await run_code(f"obs = 'x' * {MAX_CHARS}", NAMES)) == MAX_CHARS


async def test_an_endless_loop_is_ended() -> None:
    assert "took more than 2 s" in await failure("while True: pass")


async def test_memory_has_an_end() -> None:
    assert "MemoryError" in await failure("x = 'a' * 10**10")
    assert await failure("x = []\nwhile True: x.append('a' * 10**6)")


async def test_it_has_no_descriptor_of_ours(tmp_path: Path) -> None:
    """Files that this process has open, also those that a program started by it would get, are
    closed in the code's process.
    """
    text = Path(jail.__file__).read_text()
    lock, given = '        lock_in(request["cpu_seconds"]', '{**request["names"]'
    assert text.count(lock) == text.count(given) == 1
    listed = '        listed = " ".join(os.listdir("/proc/self/fd"))\n'
    (tmp_path / "jail.py").write_text(
        text.replace(lock, listed + lock).replace(given, '{"found": listed, **request["names"]')
    )
    (tmp_path / "secret").write_text("secret")
    kept = os.open(tmp_path / "secret", os.O_RDONLY)
    os.set_inheritable(kept, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prill.papers.synapse.sandbox._JAIL", tmp_path / "jail.py")
        found = await run_code("obs = found", NAMES)
    os.close(kept)
    assert set(found.split()) <= {"0", "1", "2", "3"}  # 3 is the listing itself


ATTEMPTS = {
    "read a file": "open('/etc/passwd')",
    "write a file": "open('{folder}/written', 'w')",
    "list a folder": "os.listdir('/')",
    "open a socket": "socket.socket()",
    "fork": "os.fork()",
    "start a program": "os.execv('/bin/true', ['/bin/true'])",
    "signal the parent": "os.kill(os.getppid(), 0)",
    "write elsewhere": "os.write(2, b'x')",
    "read its input": "os.read(0, 1)",
    "read its environment": "open('/proc/self/environ')",
    "make a pipe": "os.pipe()",
    "raise its limits": "resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    "wait": "time.sleep(0.01)",
}
KERNEL = """
import ctypes, json, os, resource, runpy, socket, sys, time
jail = runpy.run_path({jail!r}, run_name="jail")
jail["confine"](ctypes.CDLL(None, use_errno=True))
came = {{}}
for name, attempt in {attempts!r}.items():
    try:
        eval(attempt)
        came[name] = "it worked"
    except (OSError, ValueError) as error:  # setrlimit has an error of its own for EPERM
        came[name] = type(error).__name__
os.write(1, json.dumps(came).encode())
os._exit(0)
"""


def test_the_kernel_alone_refuses_everything(tmp_path: Path) -> None:
    """Without any other layer: full Python that has the modules in hand."""
    attempts = {name: attempt.format(folder=tmp_path) for name, attempt in ATTEMPTS.items()}
    program = KERNEL.format(jail=str(jail.__file__), attempts=attempts)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=120, check=False
    )
    refused = dict.fromkeys(ATTEMPTS, "PermissionError") | {"raise its limits": "ValueError"}
    assert json.loads(done.stdout) == refused
    assert not list(tmp_path.iterdir())


# By the numbers of x86-64: of other processes, of threads, of memory shared with them, of the
# kernel's own programs, of memory that can be run (7 is PROT_READ, PROT_WRITE and PROT_EXEC).
NATIVE = {
    "clone": 56, "clone3": 435, "vfork": 58, "execve": 59, "ptrace": 101, "prctl": 157, "process_vm_readv": 310,  # noqa: E501
    "process_vm_writev": 311, "tgkill": 234, "pidfd_open": 434, "openat": 257, "openat2": 437, "open_by_handle_at": 304,  # noqa: E501
    "memfd_create": 319, "shmget": 29, "io_uring_setup": 425, "bpf": 321, "userfaultfd": 323, "perf_event_open": 298,  # noqa: E501
    "seccomp": 317, "writev": 20, "pwrite64": 18, "sendto": 44, "ioctl": 16, "dup": 32, "fcntl": 72, "prlimit64": 302,  # noqa: E501
    "mmap": 9, "mprotect": 10, "pkey_mprotect": 329,
}  # fmt: skip
RAW = """
import ctypes, json, mmap, os, runpy, sys
jail = runpy.run_path({jail!r}, run_name="jail")
library = ctypes.CDLL(None, use_errno=True)
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid by int 0x80, the way in of 32-bit programs
jail["confine"](library)
old = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
came = {{}}
for name, number in {native!r}.items():
    came[name] = [library.syscall(number, 0, 0, 7, 0, 0, 0), ctypes.get_errno()]
os.write(1, json.dumps(came).encode())
{last}
os.write(1, b"still here")
os._exit(0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize(
    "last", ["old()", "library.syscall(0x40000000 + 39)"], ids=["32-bit calls", "x32 calls"]
)
def test_the_kernel_alone_holds_native_code(last: str) -> None:
    """Every call is refused with EPERM; one in another machine's numbers ends the process."""
    program = RAW.format(jail=str(jail.__file__), native=NATIVE, last=last)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=120, check=False
    )
    assert json.loads(done.stdout) == {name: [-1, errno.EPERM] for name in NATIVE}
    # the latter where the kernel knows no 32-bit programs
    assert done.returncode in (-signal.SIGSYS, -signal.SIGSEGV)


def test_the_audit_hook_alone_refuses_files() -> None:
    program = (
        f"import os, runpy, sys\njail = runpy.run_path({str(jail.__file__)!r}, run_name='jail')\n"
        "sys.addaudithook(jail['refuse'])\n"
        "try:\n    open('/etc/passwd')\nexcept PermissionError as error:\n    os.write(1, "
        "str(error).encode())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=120, check=False
    )
    assert done.stdout == b"open is not allowed"


async def test_a_machine_without_a_filter_runs_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fails closed: the code is not run where the kernel cannot sandbox it."""
    text = (
        Path(jail.__file__)
        .read_text()
        .replace('"x86_64"', '"other"')
        .replace('"aarch64"', '"other"')
    )
    (tmp_path / "jail.py").write_text(text)
    monkeypatch.setattr("prill.papers.synapse.sandbox._JAIL", tmp_path / "jail.py")
    assert "the kernel cannot sandbox it" in await failure("obs = state")
