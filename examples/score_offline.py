"""Judges a few recorded attempts with the embedded model.

Run: .venv/bin/python examples/score_offline.py [COUNT]
"""

import sys
from itertools import islice

import prill

# or prill.judge("vlm", model="gpt-4o")
judge = prill.judge("modular", captioner="text", model="embedded")
count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
trajectories = islice(prill.iter_trajectories("datasets/samples/miniwob/trajectories.jsonl"), count)
for verdict in prill.score(trajectories, judge):
    print(verdict.id, verdict.success, verdict.score, verdict.unscored or verdict.reason)
