#!/usr/bin/env bash
# Record episodes in a real browser, judge them, and compare with what the environment says.
# Run: examples/record_score_agree.sh DIR   (needs Chromium; see README)
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}

"$prill" rollout miniwob --tasks click-link,enter-text --seeds 1 --behaviour solve,no-submit -o "$out"
"$prill" score "$out/trajectories.jsonl" -o "$out/verdicts.jsonl" --evaluator modular --captioner ocr --model embedded
"$prill" agree "$out/verdicts.jsonl" "$out/labels.jsonl"
