"""Lazy package exports: each public name is imported from its module on first use."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module


def lazily(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, which carry out the imports that stand in its
    `__init__.py` under TYPE_CHECKING, each when its name is first used.

    So type checkers, editors and the program read the same lines. A name must differ from those of
    modules: as soon as a module is imported, it takes that name.
    """

    def find(name: str) -> object:
        if name[:2] == "__" or name not in homes(package):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes(package)[name]
        return getattr(import_module(module), attribute)

    return find, lambda: sorted({*homes(package), *vars(import_module(package))})


@cache
def homes(package: str) -> Mapping[str, tuple[str, str]]:
    """Where the lazy names of a package come from: a module, and the name there."""
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
