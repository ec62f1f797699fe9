#!/usr/bin/env bash
# A cascade: a judge fitted to labels, and a language model for what that one is unsure of. Says which calls it saved.
# Run: OPENAI_BASE_URL=http://localhost:8000/v1 examples/cascade.sh MODEL
set -euo pipefail
model=${1:?model at the endpoint}
prill=${PRILL:-.venv/bin/prill}
samples=datasets/samples/miniwob

mkdir -p out/cascade
"$prill" fit "$samples/trajectories.jsonl" "$samples/labels.jsonl" -o out/cascade/student.json
"$prill" score "$samples/trajectories.jsonl" -o out/cascade/verdicts.jsonl --no-resume \
    --judge examples/cascade.toml --model "$model" || [ $? -eq 3 ] # 3: some are unscored
