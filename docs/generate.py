"""A hook of MkDocs: tables of options made from the code, and pages that lie beside what they
describe.

A page asks for a table by `<!-- generated: NAME -->`, NAME a key of TABLES. The pages in WRITTEN
have their tables in the checkout, too: `python docs/generate.py --write` writes them. Links between
pages are those of the repository; where a page has another address on the site, they are rewritten.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prill.captioner.registry import CAPTIONERS
from prill.cli.commands import GROUPS
from prill.cli.derive import derive
from prill.config.registry import Option, list_options, load_object
from prill.datasets.formats import FORMATS
from prill.emulators.registry import ENVIRONMENTS
from prill.emulators.settings import EnvironmentConfig
from prill.evaluators.attacks import FAMILIES, attack_families
from prill.evaluators.judge import load_page
from prill.evaluators.page import COMMON_DIFFERENCES, Page, ShownFrames, Stage, list_pages
from prill.evaluators.readers import READERS
from prill.evaluators.registry import JUDGES, JudgeWrappers, judge_options
from prill.evaluators.slots import SLOTS
from prill.models.registry import MODELS, ModelConfig
from prill.policies.registry import POLICIES
from prill.refine.rewards.reward import RewardSpec
from prill.refine.training.spec import TrainSpec, presets

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (ROOT / "docs/reference/options.md", ROOT / "docs/reference/commands.md")
# Where files outside docs/ stand on the site.
OUTSIDE = {
    "benchmarks/RESULTS.md": "results.md",
    "papers/README.md": "papers/index.md",
    **{
        f"papers/{path.parent.name}/README.md": f"papers/{path.parent.name}.md"
        for path in (ROOT / "papers").glob("*/README.md")
    },
    **{
        f"benchmarks/images/{path.name}": f"images/{path.name}"
        for path in (ROOT / "benchmarks/images").glob("*.svg")
    },
}
_MARK = re.compile(
    r"^<!-- generated: (\w+) -->$(?:(?:(?!^<!-- generated).)*?^<!-- end -->$)?",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)")
# A model of each kind, to ask for its options.
_EXAMPLES = {
    "NAME": "gpt-4o",
    "embedded": "embedded",
    "local:MODEL": "local:m",
    "vllm:MODEL": "vllm:m",
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages and pictures that lie outside docs/."""
    from mkdocs.structure.files import File

    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills in the tables and mends the links of a page; guides come before the reference in a
    search.
    """
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    elif page.file.src_uri.startswith("reference/api/"):
        page.meta["search"] = {"boost": 0.2}
    elif page.file.src_uri.startswith(("how-to/", "tutorials/", "explanation/", "papers/")):
        page.meta["search"] = {"boost": 3}
    return mend_links(fill_tables(markdown), page.file.src_uri)


def fill_tables(markdown: str) -> str:
    """Puts each table behind its mark, in place of the one that is there.

    Args:
        markdown: The page.

    Returns:
        The page with tables.

    Raises:
        KeyError: No table has the name in a mark.
    """

    def filled(match: re.Match[str]) -> str:
        table = "\n".join(TABLES[match[1]]()).strip()
        return f"<!-- generated: {match[1]} -->\n\n{table}\n\n<!-- end -->"

    return _MARK.sub(filled, markdown)


def mend_links(markdown: str, page: str) -> str:
    """Turns links of the repository into links of the site.

    Args:
        markdown: The page.
        page: Its address on the site, such as `how-to/rewards.md`.

    Returns:
        The page with links that lead to where its targets stand on the site.
    """
    sources = {target: source for source, target in OUTSIDE.items()}
    folder = (ROOT / sources.get(page, f"docs/{page}")).parent
    depth = page.count("/")

    def mend(match: re.Match[str]) -> str:
        path = (folder / match[2]).resolve()
        if not path.is_relative_to(ROOT):
            return match[0]
        source = str(path.relative_to(ROOT))
        target = OUTSIDE.get(source) or (
            source.removeprefix("docs/") if source.startswith("docs/") else None
        )
        return match[0] if target is None else f"{match[1]}{'../' * depth}{target}"

    return _LINK.sub(mend, markdown)


def _options(options: Iterable[Option]) -> Iterator[str]:
    """A table of options, or that there are none."""
    rows = [
        (
            f"`{option.name}`",
            _cell(option.type_name.removesuffix(" | null")),
            "required"
            if option.required
            else ""
            if option.default is None
            else f"`{_default(option.default)}`",
            _cell(option.description),
        )
        for option in options
    ]
    yield from _table(("option", "type", "default", "meaning"), rows) if rows else ("No options.",)


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value) or '""'


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _cell(text: str) -> str:
    return re.sub(r"[\\|<>*_\[\]]", r"\\\g<0>", " ".join(text.split()))


def _sections(
    names: Mapping[str, str], options: Callable[[str], Iterable[Option]]
) -> Iterator[str]:
    for name, what in names.items():
        yield from (
            f"### {name}",
            "",
            f"{what[:1].upper()}{what[1:]}.",
            "",
            *_options(options(name)),
            "",
        )


def _judges() -> Iterator[str]:
    yield from _sections(
        {name: entry.what for name, entry in JUDGES.entries.items()},
        lambda name: judge_options(name).values(),
    )
    yield from ("### Around any judge", "", *_options(list_options(JudgeWrappers).values()))
    yield "Judges that ask a model also take [its options](options.md#models)."


def _models() -> Iterator[str]:
    names = {form: what for form, (what, _) in MODELS.items()}
    yield from _sections(
        names, lambda form: ModelConfig.options_for({"name": _EXAMPLES[form]}).values()
    )


def _captioners() -> Iterator[str]:
    yield from _sections(
        CAPTIONERS.names(), lambda name: list_options(CAPTIONERS.maker(name)).values()
    )


def _policies() -> Iterator[str]:
    yield from _sections(POLICIES.names(), lambda name: list_options(POLICIES.maker(name)).values())


def _environments() -> Iterator[str]:
    yield from _sections(
        ENVIRONMENTS.names(), lambda name: EnvironmentConfig.options_named(name).values()
    )


def _rewards() -> Iterator[str]:
    yield from _options(list_options(RewardSpec).values())


def _training() -> Iterator[str]:
    rows = [
        (f"`{name}`", _cell(preset.what), _cell(preset.source))
        for name, preset in presets().items()
    ]
    yield from _table(("preset", "what", "source"), rows)
    yield from _options(list_options(TrainSpec).values())


def _attacks() -> Iterator[str]:
    variants = attack_families(Path("nowhere"))
    yield f"All {sum(map(len, variants.values()))} attacks of all {len(FAMILIES)} families."
    yield "†: a judge may rightly reject what was a success before.\n"
    rows = []
    for name, family in FAMILIES.items():
        strengths = (
            ", ".join(f"{variant.strength:g}" for variant in variants[name]) if family.unit else ""
        )
        mark = "" if all(variant.keeps_success for variant in variants[name]) else " †"
        rows.append(
            (
                f"`{name}`{mark}",
                _cell(family.what),
                f"{strengths} {family.unit}".strip(),
                _cell(family.cost),
            )
        )
    yield from _table(("family", "what it does", "strengths", "what it costs the agent"), rows)


def _protocols() -> Iterator[str]:
    for name in list_pages():
        protocol = load_page(name)
        if protocol.error is None:
            continue
        yield from (f"### {name}, as published", "", f"{protocol.title} ({protocol.paper}).", "")
        label = {"failure": "failure", "none": "no label"}[protocol.error]
        rows = (
            ("source", ", ".join(protocol.source)),
            ("their model", protocol.model),
            ("shown", protocol.shows),
            ("their parser", protocol.parser),
            ("a failed call, by their rule", label),
        )
        yield from _table(("", ""), ((what, _cell(words)) for what, words in rows))
        yield from ("", "Differences:", "", *(f"* {_cell(d)}" for d in protocol.differences), "")
    yield from ("All of them:", "", *(f"* {words}" for words in COMMON_DIFFERENCES), "")


def _pages() -> Iterator[str]:
    for type_, heading in (
        (Page, "key"),
        (Stage, "key of a stage"),
        (ShownFrames, "key of frames"),
    ):
        arguments = (inspect.getdoc(type_) or "").partition("Args:")[2]
        rows = [
            (f"`{match[1]}`", _cell(match[2]))
            for match in re.finditer(r"^    (\w+): ((?:.|\n {6,})*)", arguments, re.MULTILINE)
            if match[1] not in ("folder", "text")
        ]
        yield from _table((heading, "meaning"), rows)
    readers = [
        (f"`{name}`", _cell((inspect.getdoc(type(reader)) or "").split("\n\n")[0]))
        for name, reader in READERS.items()
        if not type(reader).__name__.endswith("SimpleReader")
    ]
    yield from _table(("`reads`", "how a reply is read"), readers)
    simple = [f"`{name}`" for name in READERS if f"`{name}`" not in dict(readers)]
    yield f"Also {', '.join(simple)}, of published judges. Placeholders of prompts:"
    yield f"{', '.join(f'`{name}`' for name in (*SLOTS, 'quotes', 'images'))}."


def _formats() -> Iterator[str]:
    for name, what in FORMATS.names().items():
        yield from (f"### {name}", "", f"{what[:1].upper()}{what[1:]}.", "")
        options = [*list_options(FORMATS.maker(name)).values()][1:]
        yield from _options(options) if options else ()


def _commands() -> Iterator[str]:
    for group, (about, commands) in GROUPS.items():
        yield from (f"## {group.capitalize()}: {about}", "")
        for name, command in commands.items():
            yield from (
                f"### prill {name}",
                "",
                f"{command.purpose[:1].upper()}{command.purpose[1:]}.",
                "",
            )
            yield from ("```bash", *command.examples, "```", "") if command.examples else ()
            derived, _ = derive(
                load_object(command.config),
                [],
                command.layout,
                prog=f"prill {name}",
                dry_run=bool(command.plan),
            )
            rows = [row for action in derived.parser._actions if (row := _flag(action))]
            yield from _table(("flag", "meaning"), rows)
            yield from (_cell(command.epilog), "") if command.epilog else ()


def _flag(action: argparse.Action) -> tuple[str, str] | None:
    """The row of a flag; None for the help and for what help hides."""
    if action.dest == "help" or action.help == argparse.SUPPRESS:
        return None
    shown = getattr(action, "shown", None) or tuple(action.option_strings)
    value = action.metavar or (action.dest if not action.option_strings else "")
    value = "" if action.nargs == 0 and action.option_strings else str(value)
    return f"`{' '.join((', '.join(shown), value)).strip()}`", _cell(
        (action.help or "") % vars(action)
    )


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "attacks": _attacks,
    "captioners": _captioners,
    "commands": _commands,
    "environments": _environments,
    "formats": _formats,
    "judges": _judges,
    "models": _models,
    "pages": _pages,
    "policies": _policies,
    "protocols": _protocols,
    "rewards": _rewards,
    "training": _training,
}

if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python docs/generate.py --write")
    for written in WRITTEN:
        written.write_text(fill_tables(written.read_text(encoding="utf-8")), encoding="utf-8")
