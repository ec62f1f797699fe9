"""Readers for recordings of other tools, one format per module.

A module has `load(source)`, which yields trajectories, `load_labels(source)` if the format carries
labels, and `load_rubrics(source)` if it carries criteria; further parameters of `load` are options
of the format. A format with embedded images takes `images`, the folder for them; without one, they
are in a temporary folder and removed when the next run is requested. `recognise(source: Source) ->
bool` detects by the content whether a file or folder is of the format; without it, the format is
read only when it is named. See CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.config.registry import Option, Registry, RegistryEntry, list_options, read_options
from prill.config.values import PartConfig
from prill.datasets.reading.sources import Source
from prill.errors import UsageError
from prill.types import StrPath

if TYPE_CHECKING:
    from prill.io.store import BadLine
    from prill.types import LabelRecord, Trajectory

_HERE = "prill.datasets.formats"
FORMATS = Registry(
    "format",
    {
        "agent-eval-refine": RegistryEntry(
            "Agent-Eval-Refine dataset folders (trajectory_log.json)",
            f"{_HERE}.agent_eval_refine:load",
        ),
        "agentlab": RegistryEntry("BrowserGym / AgentLab result folders", f"{_HERE}.agentlab:load"),
        "agentrewardbench": RegistryEntry(
            "AgentRewardBench, cleaned JSON", f"{_HERE}.agentrewardbench:load"
        ),
        "agentrewardbench-webjudge": RegistryEntry(
            "AgentRewardBench runs with WebJudge captions",
            f"{_HERE}.agentrewardbench_webjudge:load",
        ),
        "agents-sdk": RegistryEntry(
            "spans of the OpenAI Agents SDK, JSON lines", f"{_HERE}.agents_sdk:load"
        ),
        "aitw": RegistryEntry(
            "Android in the Wild: TF-Examples in TFRecord files, or as JSON", f"{_HERE}.aitw:load"
        ),
        "androidworld": RegistryEntry(
            "AndroidWorld runs with oracle rewards", f"{_HERE}.androidworld:load"
        ),
        "atif": RegistryEntry("Agent Trajectory Interchange Format, JSON", f"{_HERE}.atif:load"),
        "messages": RegistryEntry(
            "messages of Anthropic's API or of chat completions: lists, lines, run folders",
            f"{_HERE}.messages:load",
        ),
        "browser-use": RegistryEntry(
            "browser-use histories (save_history)", f"{_HERE}.browser_use:load"
        ),
        "inspect": RegistryEntry("Inspect logs (.eval, or JSON)", f"{_HERE}.inspect:load"),
        "langsmith": RegistryEntry("run trees of LangSmith, JSON", f"{_HERE}.langsmith:load"),
        "mind2web": RegistryEntry(
            "Mind2Web and MT-Mind2Web, JSON: tasks, or conversations of several turns",
            "prill.papers.mind2web.format:load",
        ),
        "online-mind2web": RegistryEntry(
            "Online-Mind2Web result folders, version 1 or 2", f"{_HERE}.online_mind2web:load"
        ),
        "openai-responses": RegistryEntry(
            "OpenAI Responses: lists of items, or responses joined by previous_response_id",
            f"{_HERE}.openai_responses:load",
        ),
        "opentelemetry": RegistryEntry(
            "OpenTelemetry traces of OpenInference or GenAI, JSON", f"{_HERE}.opentelemetry:load"
        ),
        "osworld": RegistryEntry("OSWorld result folders with traj.jsonl", f"{_HERE}.osworld:load"),
        "playwright": RegistryEntry("Playwright traces (trace.zip)", f"{_HERE}.playwright:load"),
        "screenshots": RegistryEntry(
            "pictures in a folder, or a JSON list of pictures with descriptions",
            f"{_HERE}.screenshots:load",
        ),
        "stagehand": RegistryEntry(
            "trajectory folders of Stagehand's evaluations", f"{_HERE}.stagehand:load"
        ),
        "webarena": RegistryEntry(
            "WebArena render_*.html and the merged log", f"{_HERE}.webarena:load"
        ),
    },
    "prill.formats",
)


class FormatConfig(PartConfig):
    """A format by name, with its options: `FormatConfig("mind2web", scores="scores.pkl")`."""

    __slots__ = ()
    kind, kinds = "format", "formats"
    registry = FORMATS

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the format that a table names.

        These are the parameters of its `load` after the first, the source.
        """
        _, *options = super().options_for(table).values()
        return {option.name: option for option in options}

    @classmethod
    def knows(cls, name: str) -> bool:
        """Returns whether a word is the name of a format rather than the file to read."""
        return ":" in name or name in FORMATS.names()


FormatLike = FormatConfig | str | Mapping[str, Any]


def open_recording(
    format: FormatLike | None,
    source: StrPath,
    *,
    goal: str | None = None,
    goals: Mapping[str, str] | None = None,
) -> tuple[Iterator[Trajectory | BadLine], Iterator[LabelRecord | BadLine]]:
    """Returns the trajectories of a recording and its labels, both read lazily. The format is
    detected from the content if it is None.

    `goal` is that of every run whose recording has none; `goals`, by run id or task id, take
    precedence. Raises UsageError for an unknown format or option, or if none is detected.
    """
    described = FormatConfig.read(find_format(source) if format is None else format, "format")
    load = FORMATS.maker(described.name)
    first = next(iter(list_options(load)))
    options = read_options(
        load, {first: source, **described.options}, f"format {described.name!r}", place="format."
    )
    options[first] = source
    return _with_goals(load(**options), goal, goals or {}), _labels(load, source)


def _with_goals(
    items: Iterator[Trajectory | BadLine], goal: str | None, goals: Mapping[str, str]
) -> Iterator[Trajectory | BadLine]:
    """Yields the items with a goal each; a run without one is broken."""
    from prill.io.store import BadLine

    for item in items:
        if isinstance(item, BadLine) or item.task.goal.strip():
            yield item
        elif text := goals.get(item.id) or goals.get(item.task.id) or goal:
            yield replace(item, task=replace(item.task, goal=text))
        else:
            missing = " and the file of goals has none for it" if goals else ""
            yield BadLine(
                item.id,
                item.id,
                f"the recording has no goal{missing}; give one for all runs, or a file of goals by "
                "id",
                b"",
            )


def _labels(load: Any, source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the labels of a format that has them, after the trajectories were read."""
    if (load_labels := getattr(sys.modules[load.__module__], "load_labels", None)) is not None:
        yield from load_labels(source)


def recorded_rubrics(format: FormatLike, source: StrPath) -> dict[str, list[dict[str, object]]]:
    """Returns the task criteria in a recording by task id; empty for formats without criteria.

    Args:
        format: Its format.
        source: The folder or file.
    """
    name = str(FormatConfig.read(format, "format").name)
    load_rubrics = getattr(sys.modules[FORMATS.maker(name).__module__], "load_rubrics", None)
    return {} if load_rubrics is None else dict(load_rubrics(source))


def recognise(path: StrPath) -> list[str]:
    """Returns the names of the formats that recognise a file or folder."""
    source = Source(path)
    found = []
    for name in FORMATS.names():
        test = getattr(sys.modules[FORMATS.maker(name).__module__], "recognise", None)
        if test is not None and test(source):
            found.append(name)
    return found


def find_format(path: StrPath) -> str:
    """Detects the format of a recording. Raises UsageError if there is no such file, no format
    knows it, or several do.
    """
    if not Path(path).exists():
        raise UsageError(f"{path}: no such file or folder")
    return only_format(path, recognise(path))


def only_format(path: StrPath, found: Sequence[str]) -> str:
    """Returns the format if one was detected. Raises UsageError if none was, or several were."""
    if len(found) == 1:
        return found[0]
    if found:
        files = "name files of one of them, or " if Path(path).is_dir() else ""
        raise UsageError(
            f"{path}: could be of the formats {', '.join(found)}; {files}say which one",
            parameters=("format",),
        )
    raise UsageError(
        f"{path}: unknown format; choose one of {', '.join(FORMATS.names())}, or "
        "file.py:function of your own",
        parameters=("format",),
    )
