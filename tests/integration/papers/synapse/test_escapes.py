"""Escapes from the sandbox of generated code: each is refused by Python's layer, and without that
one the kernel's holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from prill.papers.synapse import jail, sandbox

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the filter of system calls is that of Linux"
)


@dataclass(frozen=True, slots=True)
class Escape:
    """Code that sets `obs` where it succeeds, and what Python's layer says."""

    code: str
    refused: str
    # without Python's layer it is the kernel that refuses, or what it uses does not exist there
    kernel: bool = False


# A class whose positional patterns read the attributes that a text names, of any object: no hidden
# name is written.
READS = """
u = '_' + '_'
def reads(name, value):
    kind = type('K', (type,), {{u + 'instancecheck' + u: lambda kind, value: True}})
    made = kind('R', (), {{u + 'match_args' + u: (u + name + u,)}})
    match value:
        case made(found):
            return found
{}"""
OURS = {
    "a pattern by place reads globals": Escape(
        READS.format("obs = str(reads('globals', lambda: 0)['u'])"), "class pattern"
    ),
    "a pattern by place reaches all classes": Escape(
        READS.format("obs = str(reads('subclasses', object)()[0])"), "class pattern"
    ),
    "a pattern by place inside another": Escape(
        "match [1]:\n    case [int(found)]:\n        obs = str(found)", "class pattern"
    ),
    "a class made of texts": Escape(
        "obs = str(type('A', (), {'x': 1}).x)", "takes 1 positional argument but 3"
    ),
    "a class made by the class of a class": Escape(
        "obs = str(type(int)('A', (), {}))", "type is for texts"
    ),
    "a class whose keys are hidden": Escape(
        "obs = str({'__match_args__': ('x',)})", "the text __match_args__ is not allowed"
    ),
    "a body filled by a metaclass": Escape(
        "def fill(name, bases, body):\n    body['_' + '_match_args_' + '_'] = ('x',)\n    return "
        "type(int)(name, bases, body)\n"
        "class A(metaclass=fill):\n    x = 1\nobs = str(A)",
        "type is for texts",
    ),
    "a function from its own type": Escape("obs = str(type(lambda: 0))", "type is for texts"),
    "an enumeration that reads a module": Escape(
        "import re\nseen = []\ntry:\n    re.RegexFlag._convert_('X', 'sys', seen.append)\nexcept "
        "TypeError:\n    pass\n"
        "obs = ' '.join(seen[:3] or [1])",
        "no attribute 'RegexFlag'",
    ),
    "a frame as a format reads it": Escape(
        "g = (i for i in [1])\nobs = '{0.gi_frame.f_globals}'.format(g)", "format is for"
    ),
    "a name in other letters": Escape("obs = str(().__𝒸𝓁ass__)", "__class__ is not allowed"),
    "where a generator stands": Escape(
        "def f():\n    yield from [1]\ng = f()\nnext(g)\nobs = str(g.gi_yieldfrom)",
        "gi_yieldfrom is not allowed",
    ),
    "a hidden keyword": Escape(
        "def f(**given): return given\nobs = str(f(__class__=1))", "__class__ is not allowed"
    ),
    "a template with fields of its own": Escape(
        "import string\nobs = str(string.Template('$x').substitute(x=1))", "no attribute 'Template'"
    ),
    "a text class that formats": Escape(
        "import collections\nobs = collections.UserString('{0.real}').format(1)", "format is for"
    ),
}
KNOWN = {
    "classes of all objects": Escape(
        "obs = str([].__class__.__mro__[-1].__subclasses__())", "is not allowed"
    ),
    "globals of a method": Escape(
        "class A:\n    def f(self): pass\nobs = str(A().f.__func__.__globals__)", "is not allowed"
    ),
    "builtins by name": Escape("obs = str(__builtins__)", "__builtins__ is not allowed"),
    "import by the hidden name": Escape("obs = str(__import__('os'))", "__import__ is not allowed"),
    "frame of a generator": Escape(
        "def f():\n    yield g.gi_frame.f_back\ng = f()\nobs = str(next(g).f_globals)",
        "is not allowed",
    ),
    "frame of a traceback": Escape(
        "try:\n    1 / 0\nexcept Exception as e:\n    obs = "
        "str(e.__traceback__.tb_frame.f_globals)",
        "is not allowed",
    ),
    "code of a function": Escape(
        "def f(): pass\nf.__code__ = f.__code__.replace(co_consts=())\nobs = 'x'", "is not allowed"
    ),
    "a pickle's way to make objects": Escape(
        "obs = str(().__reduce_ex__(2)[0])", "__reduce_ex__ is not allowed"
    ),
    "a descriptor by hand": Escape("obs = str(str.upper.__get__('x')())", "__get__ is not allowed"),
    "what is called for a missing name": Escape(
        "class A:\n    def __getattr__(self, name): return name\nobs = A().x",
        "__getattr__ is not allowed",
    ),
    "a pattern reads an attribute": Escape(
        "match ():\n    case object(__class__=found):\n        obs = str(found)",
        "__class__ is not allowed",
    ),
    "a pattern takes the formatting": Escape(
        "match '{0._' + '_class__}':\n    case str(format=f):\n        obs = f('')", "format is for"
    ),
    "formatting as a value": Escape(
        "obs = ''.join(map(str.format, ['{0.real}'], [1]))", "format is for"
    ),
    "a formatter reads an attribute": Escape(
        "import string\nobs = str(string.Formatter().get_field('0.real', (1,), {})[0])",
        "no attribute 'Formatter'",
    ),
    "an f-string's expression": Escape("obs = f'{().__class__!r:>40}'", "__class__ is not allowed"),
    "an error caught under a hidden name": Escape(
        "try:\n    1 / 0\nexcept Exception as __builtins__:\n    obs = 'x'",
        "__builtins__ is not allowed",
    ),
    "a wrapper copies attributes": Escape(
        "import functools\nf = functools.update_wrapper(lambda *given: 0, len)\nobs = str(f([]))",
        "no attribute 'update_wrapper'",
    ),
    "attributes by name": Escape("obs = getattr('', 'upper')()", "'getattr' is not defined"),
    "a program made of text": Escape("exec('obs = str(1)')", "'exec' is not defined"),
    "a named tuple that is evaluated": Escape(
        "import collections\nobs = str(collections.namedtuple('A', 'x')(1))", "namedtuple"
    ),
    "all objects": Escape("import gc\nobs = str(len(gc.get_objects()))", "import of gc"),
    "a submodule": Escape("import html.entities\nobs = 'x'", "import of html.entities"),
    "the environment": Escape("import os\nobs = str(dict(os.environ))", "import of os"),
    "native code": Escape(
        "import ctypes\nobs = str(ctypes.CDLL(None))", "import of ctypes", kernel=True
    ),
    "another process": Escape("import os\nobs = str(os.fork())", "import of os", kernel=True),
    "a program": Escape("import os\nos.execv('/bin/true', ['true'])", "import of os", kernel=True),
    "a thread": Escape(
        "import _thread\n_thread.start_new_thread(print, ())\nobs = 'x'",
        "import of _thread",
        kernel=True,
    ),
    "a socket": Escape(
        "import socket\nsocket.socket()\nobs = 'x'", "import of socket", kernel=True
    ),
    "a file": Escape("obs = open('/etc/passwd').read()", "'open' is not defined", kernel=True),
    "another descriptor": Escape(
        "import os\nobs = str(os.read(3, 1))", "import of os", kernel=True
    ),
    "its own memory": Escape(
        "obs = str(open('/proc/self/mem', 'rb').read(1))", "'open' is not defined", kernel=True
    ),
    "memory that is run": Escape(
        "import mmap\nmmap.mmap(-1, 4096, prot=7)\nobs = 'x'", "import of mmap", kernel=True
    ),
    "its own limits": Escape(
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))\nobs = 'x'",
        "import of resource",
        kernel=True,
    ),
}
ESCAPES = OURS | KNOWN
PARTS = """
import _thread, collections, functools, gc, html.entities, importlib, mmap, operator, signal, socket, string
import json, os, runpy, sys
jail = runpy.run_path({jail!r}, run_name="jail")
came = {{}}
escapes = {escapes!r}
jail["lock_in"](60, 1 << 29)
{layer}
for name, code in escapes.items():
    try:
        names = {{"__name__": "abstraction"{builtins}}}
        {run}
        came[name] = ["reached", str(names["obs"])[:80]]
    except BaseException as error:
        came[name] = [type(error).__name__, str(error)]
os.write(1, json.dumps(came).encode())
os._exit(0)
"""  # noqa: E501
PYTHON = {
    "layer": (
        'sys.addaudithook(lambda event, values: event in ("compile", "exec") or '
        'jail["refuse"](event, values))'
    ),
    "builtins": ', "__builtins__": jail["allowed_builtins"]()',
    "run": 'exec(jail["read"](code), names)',
}
KERNEL = {"layer": "", "builtins": "", "run": "exec(code, names)"}


def tried(layers: dict[str, str], codes: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What each came to, all in one process that is locked in."""
    program = PARTS.format(jail=str(jail.__file__), escapes=codes, **layers)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=120, check=False
    )
    found: dict[str, tuple[str, str]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def with_python() -> dict[str, tuple[str, str]]:
    harmless = "import re, functools\nobs = '{:>1}'.format(re.search('p', '<p>').group(0))"
    return tried(
        PYTHON, {name: escape.code for name, escape in ESCAPES.items()} | {"harmless": harmless}
    )


@pytest.fixture(scope="module")
def with_the_kernel_alone() -> dict[str, tuple[str, str]]:
    return tried(KERNEL, {name: escape.code for name, escape in ESCAPES.items()} | HELD)


def test_harmless_code_is_run_next_to_it(with_python: dict[str, tuple[str, str]]) -> None:
    assert with_python["harmless"] == ["reached", "p"]


@pytest.mark.parametrize("name", ESCAPES)
def test_python_refuses_an_escape(with_python: dict[str, tuple[str, str]], name: str) -> None:
    kind, why = with_python[name]
    assert kind != "reached" and ESCAPES[name].refused in why


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_real_without_python(
    with_the_kernel_alone: dict[str, tuple[str, str]], name: str
) -> None:
    """It reaches what it is after when Python's layer is off, unless the kernel refuses it."""
    assert (with_the_kernel_alone[name][0] == "reached") is not ESCAPES[name].kernel


# What code does that has every module of Python in hand, having got there by these ways.
WAYS = {
    "a pattern by place": READS.format(
        "import json\nmodules = reads('globals', json.loads)['codecs'].sys.modules"
    ),
    "all classes": "[wrap] = [c for c in ().__class__.__mro__[1].__subclasses__() if c.__name__ "
    "== '_wrap_close']\n"
    "modules = wrap.__init__.__globals__['sys'].modules",
    "a frame": "g = (i for i in [1])\nmodules = g.gi_frame.f_builtins['__import__']('sys').modules",
    "an enumeration": (
        "import re\nmodules = re.RegexFlag._convert_.__func__.__globals__['sys'].modules"
    ),
}
ATTEMPTS = {
    "reads a file": "modules['os'].open('/etc/passwd', 0)",
    "lists a folder": "modules['os'].listdir('/')",
    "forks": "modules['os'].fork()",
    "starts a program": "modules['os'].execv('/bin/true', ['true'])",
    "kills": "modules['os'].kill(modules['os'].getpid(), 9)",
    "opens a connection": "modules['socket'].socket()",
    "writes elsewhere": "modules['os'].write(2, b'x')",
}
HELD = {
    f"{way}: {attempt}": f"{reach}\n{act}\nobs = 'done'"
    for way, reach in WAYS.items()
    for attempt, act in ATTEMPTS.items()
} | {f"{way}: reaches": f"{reach}\nobs = str('posix' in modules)" for way, reach in WAYS.items()}


@pytest.mark.parametrize("way", WAYS)
def test_the_kernel_holds_who_got_out(
    with_the_kernel_alone: dict[str, tuple[str, str]], way: str
) -> None:
    assert with_the_kernel_alone[f"{way}: reaches"] == ["reached", "True"]
    came = {attempt: with_the_kernel_alone[f"{way}: {attempt}"][0] for attempt in ATTEMPTS}
    assert came == dict.fromkeys(ATTEMPTS, "PermissionError")


@pytest.mark.parametrize("way", WAYS)
def test_no_native_interface_is_left(
    with_the_kernel_alone: dict[str, tuple[str, str]], way: str
) -> None:
    """The interface to native code is unloaded before anything runs, and cannot be loaded again."""
    assert with_the_kernel_alone["native code"][0] == "ModuleNotFoundError"
    assert with_the_kernel_alone[f"{way}: native code"] == ["reached", "[]"]


HELD |= {
    f"{way}: native code": f"{reach}\nobs = str([name for name in modules if 'ctypes' in name])"
    for way, reach in WAYS.items()
}
# Work without an end, which Python's layer lets through: the kernel's limits and the clock end it.
BOMBS = {
    "a huge number": "x = 7 ** 10 ** 8\nobs = 'done'",
    "a product": "import math\nx = math.factorial(10 ** 7)\nobs = 'done'",
    "an expression of a page": "import re\nx = re.match('(a+)+$', 'a' * 64 + 'b')\nobs = 'done'",
    "endless items": "import itertools\nx = sum(itertools.count())\nobs = 'done'",
    "memory": "x = [bytes(10 ** 6) for i in range(10 ** 6)]\nobs = 'done'",
    "one large text": "obs = 'x' * 10 ** 11",
    "lists in lists": "x = []\nfor i in range(10 ** 6): x = [x]\nobs = repr(x)",
    "a wide format": "obs = f'{1:>{10 ** 10}}'",
    "calls in calls": "def f(): return f()\nobs = f()",
    "a program in brackets": "obs = " + "(" * 9000 + "1" + ")" * 9000,
}


async def test_bombs_end_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    for name, code in BOMBS.items():
        with pytest.raises(sandbox.CodeFailedError):
            await sandbox.run_code(code, {})
            pytest.fail(name)


async def test_a_flood_of_output_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Code that got out of Python may write without an end to the one pipe it has."""
    text, begins = Path(jail.__file__).read_text(), "    program = read("
    assert text.count(begins) == 1
    (tmp_path / "jail.py").write_text(
        text.replace(begins, "    while True:\n        os.write(1, b'x' * 65536)\n" + begins)
    )
    monkeypatch.setattr(sandbox, "_JAIL", tmp_path / "jail.py")
    with pytest.raises(sandbox.CodeFailedError, match="wrote more than"):
        await sandbox.run_code("obs = 'x'", {})
