"""Lazy package exports: each public name is imported from its module on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`. `homes` maps names to modules below the package, or
    in full (`prill.…`); `module:name` where the name is another one there. A name must differ from
    those of modules: as soon as a module is imported, it takes that name.

    The same names stand in the package under TYPE_CHECKING, so that type checkers and editors know
    them.
    """
    if taken := homes.keys() & {
        home.partition(":")[0].partition(".")[0] for home in homes.values()
    }:
        raise ImportError(
            f"{package} exports {', '.join(sorted(taken))}, and has modules of that name: rename "
            "one of both"
        )

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        home = module if module.startswith("prill.") else f"{package}.{module}"
        return getattr(import_module(home), attribute or name)

    return find, lambda: sorted({*homes, *vars(import_module(package))})
