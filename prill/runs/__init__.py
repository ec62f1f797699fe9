"""Runs: for each command of prill a frozen configuration, and what carries it out and gives a typed result.

    config = ScoreConfig(trajectories=["runs.jsonl"], output="verdicts.jsonl", judge={"name": "vlm", "model": "gpt-4o"})
    result = prill.score(config)

A run prints nothing: what it has to say it gives as a result, reports to `progress`, or logs under `prill`.
"""
