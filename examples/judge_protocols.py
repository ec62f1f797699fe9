"""Judges the sample runs by published protocols, and compares the protocols.

Run: .venv/bin/python examples/judge_protocols.py MODEL FOLDER
The model is at $OPENAI_BASE_URL; the folder keeps verdicts, a table and a chart.
"""

import sys

import prill

result = prill.compare_protocols(
    prill.ProtocolsConfig(
        trajectories=["datasets/samples/miniwob/trajectories.jsonl"],
        output=sys.argv[2],
        model=sys.argv[1],
        protocols=["webjudge", "webjudge-general", "agenttrek"],
        limit=6,
    )
)
for rate in result.rates:
    print(f"{rate.rate}; {rate.official}; {rate.usage.calls} calls: {rate.citation}")
for pair in result.agreements:
    print(f"{pair.first}, {pair.second}: {pair.kappa} on {pair.runs} runs")
