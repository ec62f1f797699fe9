#!/usr/bin/env bash
# How far to trust a judge: agreement with labels, beside another judge, calibration, and attacks. No model, no network.
# Run: examples/trust_a_judge.sh DIR
# The samples stand in for your runs: a judge is fitted to some tasks and looked at on the others.
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
samples=datasets/samples/miniwob

mkdir -p "$out"
# Copies away from their images: these judges look at none.
tasks='"site":"[a-z0-9-]*[det]"' # some of the tasks, by the last letter of their names
grep -E "$tasks" "$samples/trajectories.jsonl" > "$out/first.jsonl"
grep -vE "$tasks" "$samples/trajectories.jsonl" > "$out/second.jsonl"

"$prill" fit "$out/first.jsonl" "$samples/labels.jsonl" -o "$out/student.json"
"$prill" score "$out/second.jsonl" -o "$out/student.jsonl" --judge student --model "$out/student.json" || [ $? -eq 3 ] # 3: some are no_evidence
"$prill" score "$out/second.jsonl" -o "$out/self-report.jsonl" --judge self-report
"$prill" agree "$out/student.jsonl" "$samples/labels.jsonl" --trajectories "$out/second.jsonl" --by site
"$prill" agree "$out/student.jsonl" "$out/self-report.jsonl" "$samples/labels.jsonl" --trajectories "$out/second.jsonl"
"$prill" calibrate "$out/student.jsonl" "$samples/labels.jsonl" -o "$out/calibration.json" --plot "$out/reliability.svg" \
    --trajectories "$out/second.jsonl" --cost-fp 2 --cost-fn 1
"$prill" redteam "$out/second.jsonl" "$samples/labels.jsonl" -o "$out/redteam" --attacks claim-answer,inject-page \
    --judge student --model "$out/student.json"
