"""Reads a log, judges it, measures the judge, and uses its verdicts: evaluate.py LOG LABELS OUT."""

import sys

import prill

log, labels, out = sys.argv[1:]
runs = prill.read_trajectories(log)
verdicts = prill.score(runs, "self-report")  # a judge by name; a path, a log, or a list
print(prill.agreement(verdicts, labels, trajectories=runs).kappa)
print(prill.rate(verdicts, labels, trajectories=runs))
student = prill.fit(log, labels, output=f"{out}/student.json")
fitted = prill.score(log, {"name": "student", "model": student.output})
prill.write_verdicts(fitted, f"{out}/student.jsonl")
halves = verdicts[::2], verdicts[1::2]  # of the same tasks, as if two agents had made them
print(prill.compare(*halves, trajectories=log))
print(prill.filter(runs, verdicts, output=f"{out}/rows"))
print(prill.report(log, verdicts=[verdicts, fitted], labels=labels, output=f"{out}/report.html"))
