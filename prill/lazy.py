"""Lazy package exports: each public name is imported from its module on first use."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's `__getattr__` and `__dir__` for lazy imports.

    The imports are those under TYPE_CHECKING in its `__init__.py`, and each is executed when its
    name is first used. Type checkers, editors and the program therefore use the same list. A name
    must differ from the package's module names: when a module is imported, it replaces the
    attribute of that name. `x_async` is the attribute `run_async` of a run `x`.
    """

    def find(name: str) -> Any:
        known = {} if name[:2] == "__" else homes(package)
        if name in known:
            module, attribute = known[name]
            return getattr(import_module(module), attribute)
        run = name.removesuffix("_async")
        if run in known and (found := getattr(find(run), "run_async", None)) is not None:
            return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*homes(package), *vars(import_module(package))})


@cache
def homes(package: str) -> Mapping[str, tuple[str, str]]:
    """Returns the module, and the name in it, of each lazy name of a package."""
    tree = ast.parse(inspect.getsource(import_module(package)))
    return {
        alias.asname or alias.name: (line.module, alias.name)
        for line in _lazy_lines(tree)
        if isinstance(line, ast.ImportFrom) and line.module
        for alias in line.names
    }


def _lazy_lines(tree: ast.Module) -> Iterator[ast.stmt]:
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            yield from block.body
