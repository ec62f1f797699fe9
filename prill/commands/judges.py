"""`prill judges`: the judges there are, the options of one, and the prompts it uses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from prill.errors import UsageError
from prill.evaluators.judgement import ModelJudge
from prill.evaluators.registry import JUDGES, Around, asks_a_model, judge_options
from prill.models.prompts import load_prompt
from prill.models.registry import MODELS
from prill.registry import Option, load_object, options_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Example: prill judges vlm --prompt > mine.md, edit it, and: prill score … --judge vlm --prompt mine.md"
    parser.add_argument("judge", nargs="?", metavar="NAME", help="one judge, with its options (default: all, a line each)")
    parser.add_argument("--prompt", action="store_true", help="print the prompt that the judge uses, ready to edit")
    parser.add_argument("--prompt-name", metavar="P", help="which one, of a judge with several (default: its main one)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for; 0. Raises UsageError for a judge or a prompt that there is not."""
    if args.prompt or args.prompt_name:
        print(_prompt(args.judge, args.prompt_name))
    elif args.judge:
        options = [*judge_options(args.judge).values()]
        print(json.dumps([_record(option) for option in options]) if args.json else "\n".join(_page(args.judge, options)))
    elif args.json:
        print(json.dumps([{"name": name, "what": what, "options": _names(name)} for name, what in JUDGES.names().items()]))
    else:
        print("\n".join(_listing()))
    return 0


def _listing() -> Iterator[str]:
    for name, what in JUDGES.names().items():
        yield f"{name:<15} {what}"
        if options := _names(name):
            yield f"{'':<15}   {', '.join(options)}"
    yield ""
    yield f"Around any judge: {', '.join(options_of(Around))}. A judge of your own: module:Object or file.py:Object."


def _names(name: str) -> list[str]:
    return list(judge_options(name))


def _page(name: str, options: list[Option]) -> Iterator[str]:
    maker = JUDGES.maker(name)
    yield f"{name}: {JUDGES.names().get(name, 'a judge of your own')}"
    yield ""
    yield from map(_line, options)
    if asks_a_model(maker):
        yield ""
        yield "Options of its model:"
        yield from (_line(option) for option in options_of(load_object(MODELS["NAME"][1])).values() if option.name != "model")
    yield ""
    yield "Around it:"
    yield from map(_line, options_of(Around).values())


def _line(option: Option) -> str:
    default = "required" if option.required else f"default {json.dumps(option.default, default=str)}"
    return f"  {option.name:<15} {option.type_name:<22} {default:<22} {option.description}".rstrip()


def _record(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "type": option.type_name,
        "required": option.required,
        "default": json.loads(json.dumps(option.default, default=str)),
        "description": option.description,
    }


def _prompt(judge: str | None, name: str | None) -> str:
    if not judge:
        raise UsageError("name the judge whose prompt is wanted")
    maker = JUDGES.maker(judge)
    if not (isinstance(maker, type) and issubclass(maker, ModelJudge)):
        raise UsageError(f"judge {judge!r} has no prompts")
    name = name or str(maker.main_prompts[0])
    names = (*maker.prompt_names, *maker.paper_prompts)
    if name not in names:
        raise UsageError(f"judge {judge!r} has no prompt {name!r}; there are: {', '.join(names)}")
    return load_prompt("prill.evaluators", name).text.rstrip()
