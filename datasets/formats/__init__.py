"""Readers for recordings of other tools, one format a module.

A module has `load(source)`, which gives trajectories, and `load_labels(source)` where the format
carries labels; further parameters of `load` are options of the format. See CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prill.config.registry import Option, Registry, RegistryEntry, list_options, read_options
from prill.config.values import PartConfig

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
        "aitw": RegistryEntry(
            "Android in the Wild: TF-Examples in TFRecord files, or as JSON", f"{_HERE}.aitw:load"
        ),
        "androidworld": RegistryEntry(
            "AndroidWorld runs with oracle rewards", f"{_HERE}.androidworld:load"
        ),
        "atif": RegistryEntry("Agent Trajectory Interchange Format, JSON", f"{_HERE}.atif:load"),
        "mind2web": RegistryEntry(
            "Mind2Web and MT-Mind2Web, JSON: tasks, or conversations of several turns",
            "prill.papers.mind2web.format:load",
        ),
        "online-mind2web": RegistryEntry(
            "Online-Mind2Web result folders, version 1 or 2", f"{_HERE}.online_mind2web:load"
        ),
        "openai-batch": RegistryEntry(
            "OpenAI batch files: requests, and the replies beside them",
            f"{_HERE}.openai_batch:load",
        ),
        "osworld": RegistryEntry("OSWorld result folders with traj.jsonl", f"{_HERE}.osworld:load"),
        "screenshots": RegistryEntry(
            "pictures in a folder, or a JSON list of pictures with descriptions",
            f"{_HERE}.screenshots:load",
        ),
        "verifiers": RegistryEntry("verifiers result folders or files", f"{_HERE}.verifiers:load"),
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

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """The options of the format that a table names: the parameters of its `load` after the
        first, the source.
        """
        _, *options = list_options(FORMATS.maker(str(table.get("name")))).values()
        return {option.name: option for option in options}

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """The formats that have an option."""
        return [name for name in FORMATS.entries if option in cls.options_for({"name": name})]


FormatLike = FormatConfig | str | Mapping[str, Any]


def open_recording(
    format: FormatLike, source: str | os.PathLike[str]
) -> tuple[Iterator[Trajectory | BadLine], Iterator[LabelRecord | BadLine]]:
    """The trajectories of a recording, and its labels, each read when asked for.

    Args:
        format: Its format, by name or with options.
        source: The folder or file.

    Raises:
        UsageError: There is no such format, or it has no such option.
    """
    described = FormatConfig.read(format, "format")
    load = FORMATS.maker(described.name)
    first = next(iter(list_options(load)))
    options = read_options(
        load, {first: source, **described.options}, f"format {described.name!r}", place="format."
    )
    options[first] = source
    return load(**options), _labels(load, source)


def _labels(load: Any, source: str | os.PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """The labels of a format that has some; looked for only when the trajectories were read."""
    if (load_labels := getattr(sys.modules[load.__module__], "load_labels", None)) is not None:
        yield from load_labels(source)
