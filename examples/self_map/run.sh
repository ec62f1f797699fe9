#!/usr/bin/env bash
# Self-MAP on generated conversations, trained on the CPU: a ranker of candidates, and a planner that is asked with the memory of
# earlier turns and without it, on sites, words and names that neither has seen. Three seeds, 23 minutes on two cores; what was
# done is not done again.
# Run: examples/self_map/run.sh DIR
# Shorter: SEEDS=0 CONVERSATIONS=24 TEST=2 TURNS=2 STEPS=1 BATCH=1 RANKER_STEPS=150 examples/self_map/run.sh DIR
# (TURNS: the planner is asked at so many turns only; ANSWER: its answers have so many tokens.)
# SPLIT=dev asks on the sites of training instead: settings were chosen there.
set -euo pipefail
out=${1:?folder for data, models and results}
prill=${PRILL:-.venv/bin/prill} python=${PYTHON:-.venv/bin/python}
here=$(dirname "$0")
export PYTHONPATH=$(realpath "$here/../..")${PYTHONPATH:+:$PYTHONPATH} # for tests.support
seeds=${SEEDS:-0 1 2} steps=${STEPS:-80} batch=${BATCH:-4} split=${SPLIT:-test_website}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=PASSIVE HF_HUB_OFFLINE=1
# The best four meet at once (paper: 50, by fives), and one earlier step is shown (three): inputs stay short. Elements are written
# without their numbers: which number a text has is more than so small a planner learns from so few rows.
asks=(embedder=tfidf snippets=1 group=4 pool=4 previous=1 max_tokens=${ANSWER:-40} neg_ratio=0)

upper='.*layers\.(1[5-9]|2[0-9])\..*_proj' # of 30: below them nothing is learnt, and backwards the way is half as long

if [ ! -d "$out/data" ]; then
  "$python" "$here/conversations" "$out/data.part" --train "${CONVERSATIONS:-200}" --dev 20 --test-website "${TEST:-24}"
  mv "$out/data.part" "$out/data"
fi
for one in train "$split"; do
  [ -f "$out/$one/trajectories.jsonl" ] || "$prill" convert mind2web "$out/data/$one" -o "$out/$one"
done
# So small a ranker comes behind shared words (BM25), on the sites of training too. The planner sees the order of these.
for one in train "$split"; do
  "$prill" papers rank "$out/$one/trajectories.jsonl" --ranker bm25 -o "$out/$one/scores.json" --ranked "$out/$one/ranked.jsonl"
done

train_ranker() {
  local models=$out/seed$1
  [ -d "$models/untrained" ] || "$python" "$here/small_ranker.py" "$out/train/trajectories.jsonl" "$models/untrained" --seed "$1"
  "$prill" train ranker "$out/train/trajectories.jsonl" -o "$models/ranker" --preset small-ranker --model "$models/untrained" \
    --seed "$1" --max-length 96 --learning-rate "${RANKER_RATE:-1e-3}" --steps "${RANKER_STEPS:-600}" ${RANKER_BATCH:+--batch "$RANKER_BATCH"}
  "$prill" papers rank "$out/$split/trajectories.jsonl" --ranker "$models/ranker" -o "$models/$split.json"
}

train_planner() {
  local models=$out/seed$1
  [ -f "$models/rows.jsonl" ] ||
    "$python" "$here/rows.py" "$out/train/ranked.jsonl" "$models/rows.jsonl" --rows $((batch * steps)) --seed "$1" "${asks[@]/#/--set=}" \
      --set numbers=false
  "$prill" train policy "$models/rows.jsonl" -o "$models/planner" --preset small-text --seed "$1" --batch "$batch" \
    --targets "$upper" --learning-rate 1e-3 --steps "$steps"
  touch "$models/planner.done"
}

ask_planner() {
  local models=$out/seed$1 options=("${asks[@]//_/-}")
  options=("${options[@]/#/--policy.}")
  "$prill" papers bench mind2web --recordings "generated websites=$out/$split/ranked.jsonl" --policy self-map \
    "${options[@]}" --no-policy.numbers --policy.history "$2" --model local:embedded --model.adapter "$models/planner" --workers 8 --baselines none \
    ${TURNS:+--limit "$TURNS"} -o "$models/$split-$2"
}

# begin JOB SEED …: at most two jobs at a time, each on a core.
begin() {
  mkdir -p "$out/seed$2"
  while [ "$(jobs -pr | wc -l)" -ge "${AT_ONCE:-2}" ]; do one_ends; done
  "$@" >"$out/seed$2/$1${3:+-$3}.log" 2>&1 &
}
one_ends() { wait -n || { kill $(jobs -p); tail -n 5 "$out"/seed*/*.log >&2; exit 1; }; }

for seed in $seeds; do begin train_planner "$seed"; done
for seed in $seeds; do begin train_ranker "$seed"; done
for seed in $seeds; do
  until [ -f "$out/seed$seed/planner.done" ]; do one_ends; done
  for history in matched none; do begin ask_planner "$seed" $history; done
done
while [ -n "$(jobs -p)" ]; do one_ends; done

runs() { for seed in $seeds; do printf '%s,' "$out/seed$seed/$1"; done | sed 's/,$//'; }
"$python" "$here/compare.py" "$out"/data/"$split"/*.json --gold "$out/$split/trajectories.jsonl" --out "$out" \
  --memory "$(runs "$split-matched")" --none "$(runs "$split-none")" --scores "$(runs "$split.json")" \
  --bm25 "$out/$split/scores.json"
