#!/usr/bin/env bash
# Fit a judge to labelled runs, look at its card, and judge with it: no model, no network, seconds.
# Run: examples/fit_and_use_a_student.sh DIR
# The samples stand in for your own runs and labels; score runs that the judge was not fitted to.
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
samples=datasets/samples/miniwob

"$prill" fit "$samples/trajectories.jsonl" "$samples/labels.jsonl" -o "$out/student.json"
"$prill" score "$samples/trajectories.jsonl" -o "$out/verdicts.jsonl" --judge student --model "$out/student.json" || [ $? -eq 3 ] # 3: some are no_evidence
head -n 3 "$out/verdicts.jsonl"
