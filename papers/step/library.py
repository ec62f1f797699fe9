"""Reads libraries of policy files: one folder per environment, one Markdown file per policy, with
its examples in a separate file.

    libraries/shop/library.toml              the environment: verbs, root policy, page format
    libraries/shop/find_order.md             +++ name, purpose, usage, verbs, calls +++, then rules
    libraries/shop/examples/find_order.toml  [[example]] objective, observation, url, previous,
                                             reason, action

To add a policy, add a file and list it in `calls` of its callers. A folder of your own is read in
the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import msgspec

from prill.actions.webarena import UnreadableActionError, parse_action
from prill.config.registry import nearest
from prill.config.toml import parse_toml, read_toml
from prill.errors import UsageError
from prill.models.prompts import content_hash
from prill.papers.step.grammar import read_call
from prill.types import Task

_SHIPPED = Path(__file__).resolve().parent / "libraries"
AUTO = "auto"
STOP = "stop"
# The library for tasks that no other library claims.
DEFAULT = "webarena"
# The rules below this heading are about calls. They are omitted from the flat prompt, which has no
# calls.
CALLS_HEADING = "## Calling policies"
_SLOT = re.compile(r"\{\{ *(\w+) *\}\}")
_SLOTS = {"origin"}
_FENCE = "+++"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class WorkedExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One worked turn: the policy's input and its answer. `previous` are lines of its history."""

    objective: str
    observation: str
    reason: str
    action: str
    url: str = ""
    previous: tuple[str, ...] = ()


class Front(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The front matter of a policy file: what callers see, what it may do, a last reminder."""

    name: str
    purpose: str
    verbs: tuple[str, ...]
    usage: str = ""
    calls: tuple[str, ...] = ()
    remind: str = ""


@dataclass(frozen=True)
class Template:
    """A policy: its front matter, rules, and worked examples."""

    front: Front
    rules: str
    examples: tuple[WorkedExample, ...] = ()

    @property
    def usage(self) -> str:
        """The form of a call of this policy."""
        return self.front.usage or f"{self.front.name} [what is wanted]"


class Surroundings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `library.toml`: settings that all policies of an environment share.

    `about` explains the page format to every policy. `verbs` are the actions of the environment,
    with a sentence each. `roots` names the root policy of a site; `root` is the default. `tasks` is
    the prefix of the ids of its tasks. `max_rows` limits pages, `max_steps` limits the actions of
    an episode, and `enter` is whether `type` presses Enter by default. With `html`, a page that is
    not HTML is refused, because the policies' rules are about HTML. `examples_of` is the prefix of
    the task ids on whose sites the worked examples were made. Other sites look different, so
    examples are not shown there unless requested.
    """

    about: str
    root: str
    verbs: dict[str, str]
    roots: dict[str, str] = {}
    tasks: str = ""
    examples_of: str = ""
    max_rows: int = 500
    max_steps: int = 0
    enter: bool = True
    html: bool = False


@dataclass(frozen=True)
class Library:
    """The policies of an environment by name. `hash` covers the content of all its files."""

    name: str
    surroundings: Surroundings
    templates: Mapping[str, Template]
    hash: str

    def get_root(self, site: str | None) -> str:
        """Returns the root policy for a task's site."""
        return self.surroundings.roots.get(site or "", self.surroundings.root)

    def flat(self, fits: Callable[[Template], bool] = lambda template: True) -> Template:
        """Returns SteP's baseline: one policy with the rules and examples that fit, no calls."""
        front = Front(
            name="flat",
            purpose="do all that the objective asks for",
            verbs=tuple(self.surroundings.verbs),
        )
        flat = Template(front, "")
        if not fits(flat):
            raise UsageError(
                f"library {self.name}: flat_tokens is too small even for a prompt without rules",
                parameters=("flat_tokens",),
            )
        roots = dict.fromkeys((self.surroundings.root, *self.surroundings.roots.values()))
        for name in dict.fromkeys((*roots, *self.templates)):
            template = self.templates[name]
            if rules := template.rules.partition(CALLS_HEADING)[0].strip():
                section = f"## To {template.front.purpose}\n{rules}"
                larger = replace(flat, rules=f"{flat.rules}\n\n{section}".strip())
                flat = larger if fits(larger) else flat
        for example in self._in_turns():
            # An example of a call shows an action that the flat policy does not have.
            if read_call(example.action).verb not in self.templates:
                larger = replace(flat, examples=(*flat.examples, example))
                flat = larger if fits(larger) else flat
        return flat

    def with_examples(self, most: int) -> Library:
        """Returns the library with at most this many examples, taken from the policies in turns."""
        examples = self._in_turns()[:most]
        templates = {
            name: replace(
                template, examples=tuple(one for one in template.examples if one in examples)
            )
            for name, template in self.templates.items()
        }
        return replace(self, templates=templates)

    def _in_turns(self) -> list[WorkedExample]:
        rounds = zip_longest(*(template.examples for template in self.templates.values()))
        return [one for several in rounds for one in several if one is not None]


def shipped_libraries() -> tuple[str, ...]:
    """Returns the names of the libraries that come with prill."""
    return tuple(sorted(file.parent.name for file in _SHIPPED.glob("*/library.toml")))


def library_for(name: str, task: Task) -> Library:
    """Returns the library of that name or folder; `auto`: the one that claims the task."""
    if name != AUTO:
        return load_library(name)
    libraries = [load_library(shipped) for shipped in shipped_libraries()]
    for library in libraries:
        if library.surroundings.tasks and task.id.startswith(library.surroundings.tasks):
            return library
    return next(
        (library for library in libraries if task.site in library.surroundings.roots),
        load_library(DEFAULT),
    )


@cache
def load_library(name: str) -> Library:
    """Loads a library that comes with prill, or a folder. Raises UsageError."""
    if re.fullmatch(r"[\w-]+", name) and name in shipped_libraries():
        folder = _SHIPPED / name
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        raise UsageError(
            f"library {name!r}: neither a folder nor a built-in "
            f"library{nearest(name, shipped_libraries())}; built-in: "
            f"{', '.join(shipped_libraries())}"
        )
    templates = {file.stem: _template(file) for file in sorted(folder.glob("*.md"))}
    surroundings = _converted(folder / "library.toml", Surroundings)
    inside = (file for file in folder.iterdir() if file.suffix in (".toml", ".md"))
    files = [*sorted(inside), *sorted(folder.glob("examples/*.toml"))]
    hash = content_hash(*map(_text, files))
    library = Library(Path(name).name, surroundings, templates, hash)
    if problem := next(_problems(library, folder), None):
        raise UsageError(problem)
    return library


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8: {error}") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None


def _template(file: Path) -> Template:
    start, _, rest = _text(file).lstrip().partition("\n")
    front, fence, rules = rest.partition(f"\n{_FENCE}\n")
    if start.strip() != _FENCE or not fence:
        raise UsageError(
            f"{file}: expected name, purpose and verbs as TOML between two lines {_FENCE} at the "
            "top"
        )
    head = _converted(file, Front, f"\n{front}")  # the line of the fence counts in messages
    if head.name != file.stem or not _NAME.fullmatch(file.stem):
        raise UsageError(
            f"{file}: the name {head.name!r} must equal the file name, and consist of "
            "lower-case letters, digits and _"
        )
    if unknown := set(_SLOT.findall(rules)) - _SLOTS:
        raise UsageError(
            f"{file}: unknown placeholder {unknown.pop()!r} in the rules; only origin, the "
            "page's host, is available"
        )
    examples = file.parent / "examples" / f"{file.stem}.toml"
    worked = _converted(examples, _ExampleFile).example if examples.exists() else ()
    return Template(head, rules.strip(), worked)


class _ExampleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    example: tuple[WorkedExample, ...]


def _problems(library: Library, folder: Path) -> Iterator[str]:
    """Yields what is inconsistent in a library."""
    policies, verbs = library.templates, library.surroundings.verbs
    for name in policies:
        if name in verbs or name == STOP:
            yield f"{folder}/{name}.md: {name} is also an action of the environment; rename it"
    for verb in verbs:
        if verb != "note" and parse_action(f"{verb} [1]").kind == "other":
            yield (f"{folder}/library.toml: verbs: {verb!r} is not one of the actions")
    for site, root in {"root": library.surroundings.root, **library.surroundings.roots}.items():
        if root not in policies:
            yield f"{folder}/library.toml: {site} is {root!r}: {_no_policy(root, policies)}"
    for name, template in policies.items():
        for called in template.front.calls:
            if called not in policies:
                yield f"{folder}/{name}.md: calls {called!r}: {_no_policy(called, policies)}"
        for verb in template.front.verbs:
            if verb not in verbs and verb != STOP:
                known = ", ".join(verbs)
                yield f"{folder}/{name}.md: verb {verb!r} is not in library.toml; it has: {known}"
        allowed = {STOP, name, *template.front.verbs, *template.front.calls}
        for number, example in enumerate(template.examples, 1):
            place = f"{folder}/examples/{name}.toml: example {number}"
            try:
                verb = read_call(example.action).verb
            except UnreadableActionError as problem:
                yield f"{place}: {problem}"
                continue
            if verb not in allowed:
                yield (
                    f"{place}: {verb!r} is not one of this policy's verbs and "
                    f"calls{nearest(verb, allowed)}"
                )
    for file in sorted(folder.glob("examples/*.toml")):
        if file.stem not in policies:
            yield f"{file}: {_no_policy(file.stem, policies)}"


def _no_policy(name: str, policies: Mapping[str, Template]) -> str:
    known = f"{nearest(name, policies)}; it has: {', '.join(policies)}"
    return f"the library has no policy of that name{known}"


T = TypeVar("T")


def _converted(file: Path, kind: type[T], text: str | None = None) -> T:
    """Converts the TOML text, by default that of the file. Raises UsageError."""
    try:
        return msgspec.convert(read_toml(file) if text is None else parse_toml(text), kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}") from None
