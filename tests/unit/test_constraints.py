"""constraints.txt pins all that an environment for prill consists of, and names no index."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

CONSTRAINTS = ROOT / "constraints.txt"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# They have environments of their own, except Ray, which is tried as it comes.
APART = {"vllm", "browsergym", "ray"}


def pins() -> list[Requirement]:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def asked() -> Iterator[Requirement]:
    """What the project asks for: itself, its extras, its dependency groups."""
    extras = PROJECT["project"]["optional-dependencies"]
    groups = PROJECT["dependency-groups"]
    lists = [
        PROJECT["project"]["dependencies"],
        *(extras[name] for name in extras.keys() - APART),
        *groups.values(),
    ]
    return (Requirement(one) for names in lists for one in names if isinstance(one, str))


def alone() -> set[str]:
    return {
        canonicalize_name(Requirement(one).name) for one in PROJECT["dependency-groups"]["alone"]
    }


def wanted_by(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What an installed distribution wants here; nothing of what is not installed."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    environments = [{**default_environment(), "extra": extra} for extra in extras or {""}]
    found = [Requirement(line) for line in lines]
    return [
        one
        for one in found
        if one.marker is None or any(one.marker.evaluate(here) for here in environments)
    ]


def needed() -> set[str]:
    """The distributions of this environment that prill needs, and theirs."""
    apart, found = alone(), set[tuple[str, frozenset[str]]]()
    left = [one for one in asked() if one.marker is None or one.marker.evaluate()]
    while left:
        one = left.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key not in found:
            found.add(key)
            left += [] if key[0] in apart else wanted_by(*key)
    return {name for name, _ in found} & {
        canonicalize_name(one.name) for one in importlib.metadata.distributions()
    }


def test_every_distribution_in_use_is_pinned() -> None:
    names = {
        canonicalize_name(one.name) for one in pins() if one.marker is None or one.marker.evaluate()
    }
    assert len(needed()) > 20, "the walk ended early"
    assert not needed() - names, "run `make constraints`"


def test_all_that_the_project_asks_for_is_pinned() -> None:
    versions = {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in pins()
    }
    for one in asked():
        assert one.specifier.contains(versions[canonicalize_name(one.name)], prereleases=True), one


def test_a_pin_is_one_version_without_an_address() -> None:
    text = CONSTRAINTS.read_text(encoding="utf-8")
    assert not [word for word in ("://", "--", " @ ", "file:") if word in text]
    for one in pins():
        (specifier,) = one.specifier
        assert (
            specifier.operator == "=="
            and "*" not in specifier.version
            and "+" not in specifier.version
        ), one


def test_extras_for_models_of_pictures_have_what_their_processors_need() -> None:
    """Those of Qwen-VL import torchvision; transformers 6 renames what training sets."""
    extras = PROJECT["project"]["optional-dependencies"]
    for name in ("local", "train"):
        wanted = {one.name: one.specifier for one in map(Requirement, extras[name])}
        assert "torchvision" in wanted
        assert "6.0" not in wanted["transformers"]
