#!/usr/bin/env bash
# Retries without a key: one small model in this process acts in a real browser, judges its attempts and draws the lessons.
# It is far too small to be good at any of it, and the table says so. As a judge it is sure of nearly everything, hence the
# threshold: what it is less sure of is tried again.
# Run: examples/reflexion_embedded.sh DIR   (needs Chromium and the embedded model; see README)
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}

"$prill" reflexion miniwob --tasks click-test,click-test-2,click-button,click-link,click-dialog \
  --policy "$(dirname "$0")/brief_actor.py:Brief" --model embedded --max-steps 1 --attempts 2 --workers 2 \
  --judge modular --judge.captioner text --judge.form verdict --threshold 0.99 -o "$out"
"$prill" report "$out" -o "$out/page.html"
