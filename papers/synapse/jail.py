"""The program that runs model-written code: a separate process that confines itself before it
starts. See sandbox.py.

Run as `python -I -S jail.py` with an empty environment. It reads a request from standard input,
confines itself, writes `ready`, and then its answer. Model or page text is not even parsed before
that. It imports only the standard library, and lxml for XPaths.

| request | answer |
|---|---|
| `code`, `names` | `obs`, the string that the code sets |
| `code`, `names`, `methods` of `agent` | the `calls` in order; `error` if the code fails after them |
| `page`, `xpath`, `lxml` (its folder) | `places` of the selected elements, in document order |
| each of them | `error` |

The security boundary is the kernel's; Python restricts nothing:

* limits on processor time, memory, files and processes (setrlimit);
* a system call filter (Linux seccomp), under which the process can compute, allocate memory that is
  not executable, write to standard output, and exit. The program tests the filter before it parses
  the code.

The code can import what is imported here, because no file can be read any more.
"""  # noqa: E501

from __future__ import annotations

import collections  # noqa: F401 - for the code, as are those with the same mark
import datetime  # noqa: F401
import functools  # noqa: F401
import gc
import heapq  # noqa: F401 - Counter.most_common imports it
import html.parser  # noqa: F401
import itertools  # noqa: F401
import json
import math
import os
import re
import resource
import string  # noqa: F401
import sys
import types
import unicodedata  # noqa: F401 - normalizes names in other than ASCII letters
from typing import Any

MAX_CHARS = 20_000  # of a result: a text, or the arguments of all calls together
MAX_CALLS = 200
MAX_PLACES = 1000  # elements that an XPath selects

# Kernel numbers (linux/arch/*/entry/syscalls): the machine; `write`, allowed to standard output;
# mmap and mprotect, allowed without PROT_EXEC; and the calls that are always allowed: munmap, brk,
# rt_sigprocmask, rt_sigreturn, mremap, madvise, gettimeofday, sigaltstack, futex, clock_gettime,
# exit, exit_group, getrandom, rseq.
_LINUX = {
    "x86_64": (
        0xC000003E,
        1,
        (9, 10),
        (11, 12, 14, 15, 25, 28, 96, 131, 202, 228, 60, 231, 318, 334),
    ),
    "aarch64": (
        0xC00000B7,
        64,
        (222, 226),
        (215, 214, 135, 139, 216, 233, 169, 132, 98, 113, 93, 94, 278, 293),
    ),
}
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refused with EPERM
_X32 = 0x40000000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_EXECUTABLE = 4  # PROT_EXEC


def main() -> None:
    """Runs one request: reads, confines the process, runs the code, answers, exits."""
    request = json.loads(sys.stdin.buffer.read())
    calls: list[tuple[str, str]] = []
    done: dict[str, Any] = {"calls": calls} if "methods" in request else {}
    sys.excepthook = lambda kind, error, trace: end(
        {**done, "error": f"{kind.__name__}: {error}"[:500]}
    )
    try:
        etree = load_etree(request["lxml"]) if "xpath" in request else None
        lock_in(request["cpu_seconds"], request["memory_bytes"])
    except (OSError, ValueError, AttributeError, ImportError) as error:
        return end({"locked": False, "error": str(error)})
    os.write(1, b"ready\n")
    if etree is not None:
        return end({"places": places(read_page(request["page"], etree), request["xpath"], etree)})
    sys.stdout = None  # `print` writes nothing  # type: ignore[assignment]
    names = {**request["names"], "__name__": "abstraction"}
    if "methods" in request:
        names["agent"] = make_agent(request["methods"], calls)
    exec(request["code"], names)  # exceptions go to the hook above
    found = names.get("obs")
    good = type(found) is str and found.encode("utf-8", "replace").decode() == found
    end(done or ({"obs": found} if good else {"error": "the code sets no text `obs`"}))


def make_agent(methods: dict[str, str], calls: list[tuple[str, str]]) -> types.SimpleNamespace:
    """Returns the object `agent`, whose methods only record their argument in `calls`."""

    def method(name: str, parameter: str) -> Any:
        def call(*given: object, **named: object) -> None:
            values = [str(value) for value in (*given, *named.values())]
            if len(values) != 1 or type(values[0]) is not str or named.keys() - {parameter}:
                raise TypeError(f"agent.{name}() takes one text")
            if len(calls) == MAX_CALLS:
                raise ValueError(f"the agent is called more than {MAX_CALLS} times")
            if sum(len(text) for _, text in calls) + len(values[0]) > MAX_CHARS:
                raise ValueError(f"the calls take more than {MAX_CHARS} characters")
            calls.append((name, values[0]))

        return call

    return types.SimpleNamespace(
        **{name: method(name, parameter) for name, parameter in methods.items()}
    )


def load_etree(folder: str) -> Any:
    """Imports lxml.etree from the folder that contains lxml."""
    sys.path.append(folder)
    from lxml import etree

    return etree


def read_page(html: str, etree: Any) -> Any:
    """Parses a page and returns its root, also for the requesting process."""
    # huge_tree: libxml2 otherwise stops at 256 levels
    parser = etree.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        root = etree.fromstring(html.encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError:  # the page is empty
        root = None
    return etree.Element("html") if root is None else root


def places(page: Any, xpath: str, etree: Any) -> list[int]:
    """Returns the positions, among all elements of the page, of those that an XPath selects."""
    # HTML names are case-insensitive; quoted strings are texts.
    lower = re.sub(
        r"\"[^\"]*\"|'[^']*'|[^\"']+",
        lambda part: part[0] if part[0][0] in "\"'" else part[0].lower(),
        xpath,
    )
    found = etree.XPathDocumentEvaluator(page.getroottree(), regexp=False, smart_strings=False)(
        lower
    )
    if not isinstance(found, list):
        raise ValueError("it selects no elements")
    chosen = {element for element in found if isinstance(element, etree._Element)}
    if len(chosen) > MAX_PLACES:
        raise ValueError(f"it selects {len(chosen)} elements; {MAX_PLACES} are allowed")
    return [index for index, element in enumerate(page.iter()) if element in chosen]


def lock_in(cpu_seconds: int, memory_bytes: int) -> None:
    """Applies the limits and the filter. Raises an error if a part cannot be applied."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    limit(cpu_seconds, memory_bytes)
    confine(library)
    prove()
    del ctypes, library
    forget("ctypes", "_ctypes", "resource")


def prove() -> None:
    """Raises OSError if the filter has no effect, as on an emulated kernel."""
    try:
        os.stat("/")
    except PermissionError:
        return
    raise OSError("it takes a filter of system calls, which has no effect")


def forget(*packages: str) -> None:
    """Empties and unloads these modules. The filter refuses to read their files again."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        vars(sys.modules.pop(name)).clear()
    gc.collect()  # ctypes structures are in reference cycles


def limit(cpu_seconds: int, memory_bytes: int) -> None:
    """Sets the kernel's limits for this process, in addition to what it used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    limits = {
        "CPU": seconds,
        "AS": memory_bytes,
        "FSIZE": 0,
        "NPROC": 0,
        "CORE": 0,
        "NOFILE": 3,
        "MEMLOCK": 0,
    }
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def confine(library: Any) -> None:
    """Installs the filter of system calls. Raises OSError."""
    import ctypes

    machine = _LINUX.get(os.uname().machine)
    if sys.platform != "linux" or machine is None:
        raise OSError(
            f"no filter of system calls is known for {sys.platform} on {os.uname().machine}"
        )

    class Instruction(ctypes.Structure):
        _fields_ = (
            ("code", ctypes.c_uint16),
            ("yes", ctypes.c_uint8),
            ("no", ctypes.c_uint8),
            ("value", ctypes.c_uint32),
        )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction)))

    steps = [Instruction(*step) for step in system_call_filter(*machine)]
    program = Program(len(steps), (Instruction * len(steps))(*steps))
    for arguments in (
        (_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if library.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the kernel does not support system call filters")


def system_call_filter(
    architecture: int, write: int, mapping: tuple[int, int], allowed: tuple[int, ...]
) -> list[tuple[int, int, int, int]]:
    """Returns the filter: code, jump if true, jump if false, value."""
    return [
        (_LOAD, 0, 0, 4),  # load the architecture; others have other call numbers
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # load the call number
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *(step for number in allowed for step in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW))),
        (_EQUAL, 1, 0, mapping[0]),
        (_EQUAL, 0, 4, mapping[1]),
        (_LOAD, 0, 0, 32),  # load the third argument: the memory protection
        (_HAS_BIT, 0, 1, _EXECUTABLE),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 1, 0, write),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, 16),  # load the first argument: only standard output is allowed
        (_EQUAL, 0, 1, 1),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def end(answer: dict[str, Any]) -> None:
    """Writes the answer and exits at once, so that no leftover code runs."""
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
