#!/usr/bin/env bash
# Two judges without a model, side by side on one page with screenshots. Open DIR/report.html in a browser; `?` shows the keys.
# Run: examples/report.sh DIR
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
samples=datasets/samples/miniwob

mkdir -p "$out"
for judge in self-report always-fail; do
    "$prill" score "$samples/trajectories.jsonl" -o "$out/$judge.jsonl" --judge "$judge"
done
"$prill" report "$samples/trajectories.jsonl" -o "$out/report.html" --embed \
    --verdicts "$out/self-report.jsonl" "$out/always-fail.jsonl" --labels "$samples/labels.jsonl"
