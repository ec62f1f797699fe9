#!/usr/bin/env bash
# Self-MAP on generated conversations, trained on the CPU: a ranker of candidates, a planner with the memory of earlier turns, and
# the same planner without it, on sites, words and names that none of them has seen. Three seeds; what was done is not done again.
# Run: examples/self_map/run.sh DIR
# Shorter: SEEDS=0 CONVERSATIONS=24 TEST=4 STEPS=6 RANKER_STEPS=12 examples/self_map/run.sh DIR
set -euo pipefail
out=${1:?folder for data, models and results}
prill=${PRILL:-.venv/bin/prill} python=${PYTHON:-.venv/bin/python}
here=$(dirname "$0")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} HF_HUB_OFFLINE=1
pool=8 # candidates that take part, the best of the ranker
asks=(--set embedder=tfidf --set snippets=1 --set group=4 --set pool=$pool --set max_tokens=40)

if [ ! -d "$out/data" ]; then
  "$python" -m prill.testing.conversations "$out/data.part" --train "${CONVERSATIONS:-480}" --dev 0 --test-website "${TEST:-60}"
  mv "$out/data.part" "$out/data"
fi
for split in train test_website; do
  [ -f "$out/$split/trajectories.jsonl" ] || "$prill" convert mind2web "$out/data/$split" -o "$out/$split"
done

for seed in ${SEEDS:-0 1 2}; do
  models=$out/seed$seed
  "$python" "$here/small_models.py" "$out/train/trajectories.jsonl" "$models/untrained" "$seed"
  "$prill" train ranker "$out/train/trajectories.jsonl" -o "$models/ranker" --preset small-ranker --model "$models/untrained/ranker" \
    --seed "$seed" --max-length 96 --steps "${RANKER_STEPS:-1200}"
  "$prill" rank "$out/test_website/trajectories.jsonl" --ranker "$models/ranker" -o "$models/scores.json" --ranked "$models/test_website.jsonl"
  for history in matched none; do
    "$prill" train planner "$out/train/trajectories.jsonl" -o "$models/planner-$history" --preset small-planner \
      --model "$models/untrained/planner" --seed "$seed" --policy self-map "${asks[@]}" --set history=$history \
      --learning-rate 2e-3 --batch 16 --steps "${STEPS:-3000}"
    "$prill" bench mind2web --recordings "generated websites=$models/test_website.jsonl" --policy self-map "${asks[@]}" \
      --set history=$history --model "local:$models/planner-$history" --workers 4 --beside none -o "$models/bench-$history"
  done
done

runs() { for seed in ${SEEDS:-0 1 2}; do printf '%s,' "$out/seed$seed/bench-$1"; done | sed 's/,$//'; }
"$python" "$here/compare.py" "$out"/data/test_website/*.json --gold "$out/test_website/trajectories.jsonl" --out "$out" \
  --memory "$(runs matched)" --none "$(runs none)"
