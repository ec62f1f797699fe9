"""Runs: one frozen configuration per command and the function that executes it.

    config = ScoreConfig(
        trajectories=["runs.jsonl"],
        output="verdicts.jsonl",
        judge={"name": "vlm", "model": "gpt-4o"},
    )
    result = prill.score(config)

A run prints nothing: what it has to say it gives as a result, reports to `progress`, or logs under
`prill`.
"""
