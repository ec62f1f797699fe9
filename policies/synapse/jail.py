"""The program that runs code which a model wrote: a process of its own, which locks itself in before it begins. See sandbox.py.

Run as `python -I -S jail.py` with no environment. It reads `{"code", "names", …}` from its standard input, locks itself in,
writes `ready`, and then `{"obs": …}` or `{"error": …}`: the code is not even parsed before. It imports nothing but the
standard library. Layers, from the outside in:

* limits of the kernel on processor time, memory, files and processes (setrlimit);
* a filter of system calls (seccomp of Linux), after which the process can compute, take memory, write to its standard
  output, and end;
* an audit hook, which cannot be taken off again, that refuses whatever Python reports: files, sockets, processes, frames;
* of Python, few builtins and a few modules; names with two underscores are refused before the code is run, and so are texts
  that would read them when they are formatted.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import functools
import heapq  # noqa: F401 - Counter.most_common imports it, which it cannot do any more once locked in
import html
import html.parser
import itertools
import json
import math
import os
import re
import resource
import string
import sys
import types
from typing import Any

# Copies of what the modules define, without the modules that they import themselves: those lead to everything.
MODULES = {
    module.__name__: types.SimpleNamespace(
        **{name: value for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, types.ModuleType)}
    )
    for module in (collections, datetime, functools, html, html.parser, itertools, json, math, re, string)
}
MODULES["html"].parser = MODULES["html.parser"]
# What reads an attribute whose name is a text would lead past the check of names.
del MODULES["string"].Formatter
_SAFE = ("cache", "cmp_to_key", "lru_cache", "partial", "reduce")
MODULES["functools"] = types.SimpleNamespace(**{name: getattr(functools, name) for name in _SAFE})
_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, Exception, IndexError, KeyError, LookupError, NameError, RuntimeError,
    StopIteration, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip
_FUNCTIONS = (
    abs, all, any, bool, bytes, chr, dict, divmod, enumerate, filter, float, format, frozenset, hash, hex, int, isinstance,
    issubclass, iter, len, list, map, max, min, next, object, oct, ord, pow, range, repr, reversed, round, set, slice, sorted,
    str, sum, super, tuple, type, zip, property, staticmethod, classmethod,
)  # fmt: skip
_METHODS = {"__init__", "__len__", "__str__", "__repr__", "__iter__", "__next__", "__eq__", "__lt__", "__hash__", "__name__"}
_FORMATS = {"format", "format_map"}
_FRAMES = re.compile(r"(?:gi|cr|ag|tb|f|co)_(?:frame|code|globals|locals|builtins|back|next)")

# System calls that are allowed beside `write` to the standard output, by the kernel's numbers: memory, waiting, ending.
# mmap, mprotect, munmap, brk, rt_sigprocmask, rt_sigreturn, mremap, madvise, gettimeofday, sigaltstack, futex, clock_gettime,
# exit, exit_group, getrandom, rseq.
_LINUX = {
    "x86_64": (0xC000003E, 1, (9, 10, 11, 12, 14, 15, 25, 28, 96, 131, 202, 228, 60, 231, 318, 334)),
    "aarch64": (0xC00000B7, 64, (222, 226, 215, 214, 135, 139, 216, 233, 169, 132, 98, 113, 93, 94, 278, 293)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refused with EPERM
_X32 = 0x40000000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


def main() -> None:
    """One run: reads, locks itself in, runs, writes, and ends without looking back."""
    request = json.loads(sys.stdin.buffer.read())
    sys.excepthook = lambda kind, error, trace: end({"error": f"{kind.__name__}: {error}"[:500]})
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        limit(request["cpu_seconds"], request["memory_bytes"])
        confine(library)
    except (OSError, ValueError, AttributeError) as error:
        return end({"error": f"this machine cannot lock code in ({error}), so none is run"})
    os.write(1, b"ready\n")
    program = read(request["code"])  # what this raises, or the code, goes to the hook above
    names = {**request["names"], "__builtins__": allowed_builtins(), "__name__": "abstraction"}
    sys.addaudithook(refuse)
    exec(program, names)
    found = names.get("obs")
    good = type(found) is str and found.encode("utf-8", "replace").decode() == found
    end({"obs": found} if good else {"error": "the code sets no text `obs`"})


def read(code: str) -> types.CodeType:
    """The compiled code. Raises ValueError for names with two underscores, names of frames, and modules that are not given."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        # Every name in whatever field of whatever sort of node; the words of texts are none.
        fields = [] if isinstance(node, ast.Constant) else [value for _, value in ast.iter_fields(node)]
        for name in (one for value in fields for one in (value if isinstance(value, list) else [value])):
            hidden = isinstance(name, str) and ((name.startswith("__") and name not in _METHODS) or _FRAMES.fullmatch(name))
            if hidden:
                raise ValueError(f"{name} is not allowed")
        if _takes_format(node):
            raise ValueError("format is for a text that stands before it, without two underscores; f-strings do the rest")
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if unknown := [module for module in modules if module not in MODULES]:
            raise ValueError(f"import of {unknown[0]} is not allowed; there are {', '.join(MODULES)}")
    return compile(tree, "<abstraction>", "exec")


def _takes_format(node: ast.AST) -> bool:
    """Whether it takes the formatting of a text that is not known beforehand: `{0.name}` in one reads an attribute."""
    if isinstance(node, ast.MatchClass):
        return bool(_FORMATS.intersection(node.kwd_attrs))
    if not isinstance(node, ast.Attribute) or node.attr not in _FORMATS:
        return False
    text = node.value.value if isinstance(node.value, ast.Constant) else None
    return not isinstance(text, str) or "__" in text


def allowed_builtins() -> dict[str, Any]:
    """What the code finds without importing anything."""
    found = {one.__name__: one for one in (*_ERRORS, *_FUNCTIONS)}
    quiet = {"print": lambda *values, **options: None}
    return {**found, **quiet, "__import__": given_module, "__build_class__": builtins.__build_class__}


def given_module(name: str, _globals: object = None, _locals: object = None, parts: Any = (), level: int = 0) -> object:
    """`import` for the code: the modules that are there, and nothing else."""
    if level or name not in MODULES:
        raise ImportError(f"import of {name} is not allowed")
    return MODULES[name] if parts else MODULES[name.partition(".")[0]]


def refuse(event: str, values: object, harmless: frozenset[str] = frozenset({"exec", "sys.excepthook", "builtins.id"})) -> None:
    """The audit hook; `exec` is how the code itself begins."""
    if event not in harmless:
        raise PermissionError(f"{event} is not allowed")


def limit(cpu_seconds: int, memory_bytes: int) -> None:
    """The kernel's limits on this process; what it has used so far does not count.

    Raises OSError, ValueError or AttributeError where one cannot be set.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    limits = {"CPU": seconds, "AS": memory_bytes, "FSIZE": 0, "NPROC": 0, "CORE": 0, "NOFILE": 3, "MEMLOCK": 0}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def confine(library: Any) -> None:
    """From here on the kernel refuses nearly everything. Raises OSError where it cannot be made to."""
    import ctypes

    machine = _LINUX.get(os.uname().machine)
    if sys.platform != "linux" or machine is None:
        raise OSError(f"no filter of system calls is known for {sys.platform} on {os.uname().machine}")

    class Instruction(ctypes.Structure):
        _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction)))

    steps = [Instruction(*step) for step in system_call_filter(*machine)]
    program = Program(len(steps), (Instruction * len(steps))(*steps))
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if library.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def system_call_filter(architecture: int, write: int, allowed: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """The filter, as instructions (code, jump if so, jump if not, value) that the kernel runs at each system call."""
    return [
        (_LOAD, 0, 0, 4),  # for which machine: another one has other numbers
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # which call
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *(step for number in allowed for step in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW))),
        (_EQUAL, 1, 0, write),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, 16),  # where to: only the standard output
        (_EQUAL, 0, 1, 1),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def end(answer: dict[str, Any]) -> None:
    """Writes the answer and ends the process at once: nothing that the code left behind is run."""
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
