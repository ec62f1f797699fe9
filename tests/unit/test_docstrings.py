"""The reference is made from docstrings: what users call says what it takes, what it returns and
what it raises.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, Protocol, is_typeddict

import pytest

import prill.config.registry
import prill.errors
import prill.protocols
from tests.unit.test_structure import MODULES, ROOT

SECTION = re.compile(r"^(Args|Returns|Yields|Raises):\n((?: {4}.*\n|\n)+)", re.MULTILINE)
ITEM = re.compile(r"^ {4}(?! )\*{0,2}(.*?)(?:: \S.*)?$", re.MULTILINE)


def sections(doc: str | None) -> dict[str, str]:
    return dict(SECTION.findall(inspect.cleandoc(doc or "") + "\n"))


def own_doc(thing: Any) -> str:
    """The docstring of a function, or the one that a class itself has."""
    return inspect.cleandoc(
        vars(thing).get("__doc__") or "" if inspect.isclass(thing) else thing.__doc__ or ""
    )


def items(doc: str | None, section: str) -> list[str]:
    """What is named in a section; of a line without a name and a colon, the whole line."""
    return ITEM.findall(sections(doc).get(section, ""))


def parameters(function: Any) -> list[str]:
    """The names of the parameters, without the object itself and what is private."""
    return [
        name
        for name in inspect.signature(function).parameters
        if name not in ("self", "cls") and name[0] != "_"
    ]


def gives(function: Any) -> bool:
    return inspect.signature(function).return_annotation not in (
        None,
        "None",
        inspect.Signature.empty,
    )


@cache
def faces() -> list[str]:
    """The packages with names for users."""
    found = [
        name
        for name, path in MODULES.items()
        if path.name == "__init__.py" and "__all__" in path.read_text(encoding="utf-8")
    ]
    return [name for name in found if not name.startswith("prill.cli")]


@cache
def exported() -> dict[str, Any]:
    """Every function and class that the reference shows, each once: what packages export, and the
    protocols.
    """
    ours = [
        name
        for name, thing in vars(prill.protocols).items()
        if getattr(thing, "__module__", "") == "prill.protocols"
    ]
    found: dict[int, tuple[str, Any]] = {}
    for face, names in {
        **{face: import_module(face).__all__ for face in faces()},
        "prill.protocols": ours,
    }.items():
        for name in names:
            thing = getattr(import_module(face), name)
            if (
                inspect.isclass(thing) or isinstance(thing, FunctionType)
            ) and thing.__module__.startswith("prill"):
                found.setdefault(id(thing), (f"{face}.{name}", thing))
    return dict(found.values())


def is_protocol(thing: Any) -> bool:
    return inspect.isclass(thing) and Protocol in thing.__mro__


def methods(thing: type) -> Iterator[tuple[str, FunctionType]]:
    """The public methods that a class defines itself, without properties."""
    for name, member in vars(thing).items():
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(function, FunctionType) and (not name.startswith("_") or name == "__call__"):
            yield name, function


@cache
def of_protocols() -> frozenset[tuple[str, tuple[str, ...]]]:
    """Name and parameters of what protocols ask for: their docstrings count for every class that
    has it.
    """
    return frozenset(
        (name, tuple(parameters(function)))
        for one in exported().values()
        if is_protocol(one)
        for name, function in methods(one)
    )


def functions() -> Iterator[tuple[str, FunctionType]]:
    for name, thing in exported().items():
        if inspect.isclass(thing):
            yield from ((f"{name}.{method}", function) for method, function in methods(thing))
        else:
            yield name, inspect.unwrap(thing)


def everything() -> Iterator[tuple[str, Any]]:
    yield from functions()
    yield from ((name, thing) for name, thing in exported().items() if inspect.isclass(thing))


def faults_of(function: Any, *, known_elsewhere: bool) -> list[str]:
    """What is wrong with the sections about arguments and result."""
    doc, asked = inspect.getdoc(function), parameters(function)
    there, wrong = sections(doc), list[str]()
    if not doc:
        return ["has no docstring"]
    if known_elsewhere and not there.keys() & {"Args", "Returns", "Yields"}:
        return []
    if items(doc, "Args") != asked:
        wrong.append(f"Args: {items(doc, 'Args')}, parameters: {asked}")
    if gives(function) != bool(there.keys() & {"Returns", "Yields"}):
        wrong.append(
            "gives something and has no Returns"
            if gives(function)
            else "gives nothing and has Returns"
        )
    return wrong


def is_known_elsewhere(name: str, function: FunctionType) -> bool:
    """Whether a method is that of a protocol, or of a class that its own inherits from, with the
    same parameters.
    """
    owner, _, method = name.rpartition(".")
    bases = exported()[owner].__mro__[1:]
    of_bases = (
        getattr(vars(base)[method], "__func__", vars(base)[method])
        for base in bases
        if method in vars(base)
    )
    asked = parameters(function)
    return (method, tuple(asked)) in of_protocols() or any(
        items(other.__doc__, "Args") == asked for other in of_bases
    )


def test_the_reference_has_every_package() -> None:
    pages = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference/api").glob("*.md")
    )
    assert not [
        face for face in faces() if not re.search(rf"^::: {re.escape(face)}$", pages, re.MULTILINE)
    ]


def test_functions_say_what_they_take_and_give() -> None:
    wrong = {}
    for name, function in functions():
        is_method = name not in exported()
        if is_method and not parameters(function):
            continue  # the first line of its docstring says it
        if faults := faults_of(
            function, known_elsewhere=is_method and is_known_elsewhere(name, function)
        ):
            wrong[name] = faults
    assert not wrong, "\n".join(f"{name}: {'; '.join(faults)}" for name, faults in wrong.items())


def test_classes_say_what_they_are_made_of() -> None:
    """A parameter with a `Meta` description has it from there, and from there alone."""
    wrong = {}
    for name, thing in exported().items():
        if not inspect.isclass(thing) or is_protocol(thing) or is_typeddict(thing):
            continue
        if "__init__" not in vars(thing) and not items(own_doc(thing), "Args"):
            continue  # it is made as what it inherits from
        described = {
            option.name
            for option in prill.config.registry.list_options(thing).values()
            if option.description
        }
        asked = [parameter for parameter in parameters(thing) if parameter not in described]
        if items(own_doc(thing), "Args") != asked:
            wrong[name] = f"Args: {items(own_doc(thing), 'Args')}, parameters: {asked}"
    assert not wrong, "\n".join(f"{name}: {fault}" for name, fault in wrong.items())


def is_error(name: str, module: str) -> bool:
    places = (
        vars(sys.modules[module]),
        vars(builtins),
        vars(prill.errors),
        vars(prill.config.registry),
    )
    found = next((place[name] for place in places if name in place), None)
    return inspect.isclass(found) and issubclass(found, BaseException)


def test_raises_name_errors_that_exist() -> None:
    wrong = [
        f"{name}: {error}"
        for name, thing in everything()
        for error in items(own_doc(thing), "Raises")
        if not is_error(error, thing.__module__)
    ]
    assert not wrong, wrong


def test_constructors_say_what_they_raise() -> None:
    wrong = {}
    for name, thing in exported().items():
        made = [
            vars(thing)[one]
            for one in ("__init__", "__post_init__")
            if inspect.isclass(thing) and one in vars(thing)
        ]
        if is_protocol(thing):
            continue
        # a dataclass has one made
        sources = [inspect.getsource(one) for one in made if one.__code__.co_filename != "<string>"]
        raised = {
            error for source in sources for error in re.findall(r"\braise ([A-Z]\w+)", source)
        }
        if raised - {*items(own_doc(thing), "Raises")}:
            wrong[name] = sorted(raised)
    assert not wrong, wrong


def test_errors_stand_in_their_section() -> None:
    """A sentence about them would be missing in the table of the reference."""
    prose = re.compile(r"\b[Rr]aises `?[A-Z]\w+`?(?! inside)")
    wrong = {
        name for name, thing in everything() if prose.search(SECTION.sub("", own_doc(thing) + "\n"))
    }
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("doc", "fault"),
    [
        ("Adds.\n\nArgs:\n    a: One.\n    b: Two.\n\nReturns:\n    The sum.", ""),
        ("Adds.\n\nArgs:\n    a: One.\n\nReturns:\n    The sum.", "Args"),
        (
            "Adds.\n\nArgs:\n    a: One.\n    b: Two.\n    c: Three.\n\nReturns:\n    The sum.",
            "Args",
        ),
        ("Adds.\n\nArgs:\n    a: One.\n    b: Two.", "no Returns"),
        ("Adds a and b.", "Args"),
    ],
)
def test_a_wrong_docstring_is_found(doc: str, fault: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = doc
    found = faults_of(add, known_elsewhere=False)
    assert any(fault in one for one in found) if fault else not found


def test_descriptions_of_options_are_sentences() -> None:
    """They start with a capital letter, or with a value of the option, and end with a period."""
    wrong = [
        f"{name}: {text}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Meta", "msgspec.Meta")
        for keyword in node.keywords
        if keyword.arg == "description" and isinstance(keyword.value, ast.Constant)
        if not (text := str(keyword.value.value)).endswith(".")
        or not re.match(r"[A-Z]|p-value|[a-z0-9-]+(, [a-z-]+)*(:| only:|,)|module:", text)
    ]
    assert not wrong, wrong
