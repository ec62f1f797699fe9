#!/usr/bin/env bash
# Record episodes in a real browser, judge them, and compare with what the environment says.
# Run: examples/record_score_agree.sh DIR   (needs Chromium; see README)
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}

"$prill" rollout miniwob --tasks click-link,enter-text --seeds 1 --behaviour solve,no-submit -o "$out"
# Exit code 3 says that some are unscored: so small a model may call the evidence insufficient.
"$prill" score "$out/trajectories.jsonl" -o "$out/verdicts.jsonl" --judge modular --judge.captioner ocr --model embedded || test $? -eq 3
"$prill" agree "$out/verdicts.jsonl" "$out/labels.jsonl"
