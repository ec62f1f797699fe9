"""Runs: one frozen configuration per command and the function that executes it.

    config = ScoreConfig(
        trajectories=["runs.jsonl"],
        output="verdicts.jsonl",
        judge={"name": "vlm", "model": "gpt-4o"},
    )
    result = prill.score(config)

A run prints nothing. It returns its results, reports progress to `progress`, and logs under the
`prill` logger.
"""
