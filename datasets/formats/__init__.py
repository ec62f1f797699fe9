"""Other people's recordings: one format a module.

A module has `load(source)`, which gives trajectories, and `load_labels(source)` where the format carries labels; see
CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """What is read, in a phrase, and the module that reads it."""

    what: str
    module: str


_HERE = "prill.datasets.formats"
FORMATS = {
    "agent-eval-refine": Format("Agent-Eval-Refine dataset folders (trajectory_log.json)", f"{_HERE}.agent_eval_refine"),
    "agentlab": Format("BrowserGym / AgentLab result folders", f"{_HERE}.agentlab"),
    "agentrewardbench": Format("AgentRewardBench, cleaned JSON", f"{_HERE}.agentrewardbench"),
    "agentrewardbench-webjudge": Format("AgentRewardBench runs with WebJudge captions", f"{_HERE}.agentrewardbench_webjudge"),
    "aitw": Format("Android in the Wild: TF-Examples in TFRecord files, or as JSON", f"{_HERE}.aitw"),
    "androidworld": Format("AndroidWorld runs with oracle rewards", f"{_HERE}.androidworld"),
    "atif": Format("Agent Trajectory Interchange Format, JSON", f"{_HERE}.atif"),
    "mind2web": Format("Mind2Web and MT-Mind2Web, JSON: tasks, or conversations of several turns", f"{_HERE}.mind2web"),
    "online-mind2web": Format("Online-Mind2Web result folders, version 1 or 2", f"{_HERE}.online_mind2web"),
    "openai-batch": Format("OpenAI batch files: requests, and the replies beside them", f"{_HERE}.openai_batch"),
    "osworld": Format("OSWorld result folders with traj.jsonl", f"{_HERE}.osworld"),
    "screenshots": Format("pictures in a folder, or a JSON list of pictures with descriptions", f"{_HERE}.screenshots"),
    "verifiers": Format("verifiers result folders or files", f"{_HERE}.verifiers"),
    "webarena": Format("WebArena render_*.html and the merged log", f"{_HERE}.webarena"),
}
