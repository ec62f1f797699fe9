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

The security boundary is the kernel's:

* limits on processor time, memory, files and processes (setrlimit);
* a system call filter (Linux seccomp), under which the process can compute, allocate memory that is
  not executable, write to standard output, and exit. The program tests the filter before it parses
  the code.

Python's own layer makes escapes harder but is not a security boundary:

* a permanent audit hook that refuses every audited operation: files, sockets, processes, frames;
* few builtins, and few names of a few modules; ctypes is unloaded before the code is parsed; names
  and strings with two underscores, positional class patterns, and format strings that read
  attributes are refused.
"""  # noqa: E501

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import functools
import gc
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
import unicodedata  # noqa: F401 - names in other than ASCII letters are normalised by it when they are parsed
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from types import ModuleType
from typing import Any

# The listed names of each module. Other names lead to other modules, or read attributes whose names
# are strings (string.Formatter, functools.wraps, the metaclass of re.RegexFlag).
_GIVEN: dict[ModuleType, str] = {
    collections: "ChainMap Counter OrderedDict defaultdict deque",
    datetime: "MAXYEAR MINYEAR UTC date datetime time timedelta timezone",
    functools: "cache cmp_to_key lru_cache partial reduce",
    html: "escape unescape",
    html.parser: "HTMLParser",
    itertools: "accumulate chain combinations combinations_with_replacement compress count cycle "
    "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap "
    "takewhile tee zip_longest",
    json: "JSONDecodeError dumps loads",
    math: " ".join(name for name in vars(math) if name[0] != "_"),
    re: "compile error escape findall finditer fullmatch match search split sub subn Match Pattern "
    "A ASCII DOTALL I IGNORECASE M MULTILINE S U UNICODE VERBOSE X",
    string: "ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits "
    "printable punctuation whitespace",
}


def _given(module: ModuleType, names: str) -> types.SimpleNamespace:
    """Returns a copy of a module with these names. Flags of re become integers."""
    found = {name: getattr(module, name) for name in names.split()}
    return types.SimpleNamespace(
        **{name: int(one) if isinstance(one, re.RegexFlag) else one for name, one in found.items()}
    )


MODULES = {module.__name__: _given(module, names) for module, names in _GIVEN.items()}
MODULES["html"].parser = MODULES["html.parser"]
_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, Exception, IndexError, KeyError, LookupError, NameError, RuntimeError,  # noqa: E501
    StopIteration, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip
_FUNCTIONS = (
    abs, all, any, bool, bytes, chr, dict, divmod, enumerate, filter, float, format, frozenset, hash, hex, int, isinstance,  # noqa: E501
    issubclass, iter, len, list, map, max, min, next, object, oct, ord, pow, range, repr, reversed, round, set, slice, sorted,  # noqa: E501
    str, sum, super, tuple, zip, property, staticmethod, classmethod,
)  # fmt: skip
MAX_CHARS = 20_000  # of a result: a text, or the arguments of all calls together
MAX_CALLS = 200
MAX_PLACES = 1000  # elements that an XPath selects
_PLAIN = (bool, bytes, dict, float, frozenset, int, list, range, set, slice, str, tuple, type(None))
_METHODS = {
    "__init__", "__len__", "__str__", "__repr__", "__iter__", "__next__", "__eq__", "__lt__",
    "__hash__", "__name__",
}  # fmt: skip
_FORMATS = {"format", "format_map"}
_DUNDER = re.compile(r"__\w+__")
# many programs end with `if __name__ == "__main__":`
_HARMLESS_TEXTS = {*_METHODS, "__main__"}
_FRAMES = {  # attributes of frames, tracebacks and code that lead from one to the next
    name
    for kind in ("AsyncGenerator", "Code", "Coroutine", "Frame", "Generator", "Traceback")
    for name in dir(getattr(types, f"{kind}Type"))
    if "_" in name and not name.startswith("_")
}

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
    program = read(request["code"])  # exceptions from here on go to the hook above
    names = {**request["names"], "__builtins__": allowed_builtins(), "__name__": "abstraction"}
    if "methods" in request:
        names["agent"] = make_agent(request["methods"], calls)
    # like `exec`, but without an audit event that the hook would have to allow
    run = types.FunctionType(program, names)
    sys.addaudithook(refuse)
    run()
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


def read(code: str) -> types.CodeType:
    """Compiles the code. Raises ValueError for constructs that circumvent the allowed names."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        # All names in any field of any node type. The contents of string constants are not names.
        fields = (
            [] if isinstance(node, ast.Constant) else [value for _, value in ast.iter_fields(node)]
        )
        for name in (
            one for value in fields for one in (value if isinstance(value, list) else [value])
        ):
            if isinstance(name, str) and (
                (name.startswith("__") and name not in _METHODS) or name in _FRAMES
            ):
                raise ValueError(f"{name} is not allowed")
        text = node.value if isinstance(node, ast.Constant) else None
        text = text.decode("latin-1") if isinstance(text, bytes) else text
        if isinstance(text, str) and _DUNDER.fullmatch(text) and text not in _HARMLESS_TEXTS:
            raise ValueError(f"the text {text} is not allowed")
        if isinstance(node, ast.MatchClass) and node.patterns:
            raise ValueError(
                "a class pattern names its attributes: `case A(x=found)`, not `case A(found)`"
            )
        if _takes_format(node):
            raise ValueError(
                "format is for a text that stands before it and reads no attributes; f-strings do "
                "the rest"
            )
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if unknown := [module for module in modules if module not in MODULES]:
            raise ValueError(
                f"import of {unknown[0]} is not allowed; there are {', '.join(MODULES)}"
            )
    return compile(tree, "<abstraction>", "exec")


def _takes_format(node: ast.AST) -> bool:
    """Returns whether a node formats by a text that is dynamic or reads an attribute."""
    if isinstance(node, ast.MatchClass):
        return bool(_FORMATS.intersection(node.kwd_attrs))
    if not isinstance(node, ast.Attribute) or node.attr not in _FORMATS:
        return False
    text = node.value.value if isinstance(node.value, ast.Constant) else None
    return not isinstance(text, str) or _reads_attributes(text)


def _reads_attributes(text: str) -> bool:
    # raises ValueError for an invalid format
    for _, field, form, _ in string.Formatter().parse(text):
        if field is not None and any(
            by_name for by_name, _ in formatter_field_name_split(field)[1]
        ):
            return True
        if form and _reads_attributes(form):
            return True
    return False


def allowed_builtins() -> dict[str, Any]:
    """Returns the builtins that the code may use."""
    found = {one.__name__: one for one in (*_ERRORS, *_FUNCTIONS)}
    own = {"print": lambda *values, **options: None, "type": plain_type}
    return {**found, **own, "__import__": given_module, "__build_class__": builtins.__build_class__}


def plain_type(value: object) -> type:
    """Replaces `type` for the code, for plain values only: `type` itself creates classes."""
    if type(value) not in _PLAIN:
        raise TypeError("type is for texts, numbers, lists, tuples, sets and dictionaries")
    return type(value)


def given_module(
    name: str, _globals: object = None, _locals: object = None, parts: Any = (), level: int = 0
) -> object:
    """Replaces `import` for the code. It imports only the allowed modules."""
    if level or name not in MODULES:
        raise ImportError(f"import of {name} is not allowed")
    return MODULES[name] if parts else MODULES[name.partition(".")[0]]


def refuse(
    event: str,
    values: object,
    harmless: frozenset[str] = frozenset({"sys.excepthook", "builtins.id"}),
) -> None:
    """Refuses audit events (the audit hook)."""
    if event not in harmless:
        raise PermissionError(f"{event} is not allowed")


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
    """Empties and unloads these modules. The audit hook refuses to import them again."""
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
