#!/usr/bin/env bash
# How far to trust a judge: agreement with labels, against another judge, calibration, and attacks. No model, no network.
# Run: examples/trust_a_judge.sh DIR
# The samples stand in for your runs: a judge is fitted to one half and looked at on the other.
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
samples=datasets/samples/miniwob

mkdir -p "$out"
# Copies away from their images: these judges look at none.
head -n 41 "$samples/trajectories.jsonl" > "$out/first.jsonl"
tail -n +42 "$samples/trajectories.jsonl" > "$out/second.jsonl"

"$prill" fit "$out/first.jsonl" "$samples/labels.jsonl" -o "$out/student.json" --evidence-only
"$prill" score "$out/second.jsonl" -o "$out/student.jsonl" --judge student --model "$out/student.json" || [ $? -eq 3 ] # 3: some are no_evidence
"$prill" score "$out/second.jsonl" -o "$out/self-report.jsonl" --judge self-report
"$prill" agree "$out/student.jsonl" "$samples/labels.jsonl" --trajectories "$out/second.jsonl" \
    --by site --against "$out/self-report.jsonl"
"$prill" calibrate "$out/student.jsonl" "$samples/labels.jsonl" -o "$out/calibration.json" --plot "$out/reliability.svg" \
    --trajectories "$out/second.jsonl" --cost-fp 2 --cost-fn 1
"$prill" redteam "$out/second.jsonl" "$samples/labels.jsonl" -o "$out/redteam" --attacks claim-answer,inject-page \
    --judge student --model "$out/student.json"
