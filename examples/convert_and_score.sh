#!/usr/bin/env bash
# Someone else's recordings, judged: convert, score, compare with the labels that came along, look at it. No model, no network.
# Run: examples/convert_and_score.sh DIR
# The recordings are made here, in the layout of Agent-Eval-Refine; `prill convert --help` lists the formats that are read.
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
theirs=$out/theirs

mkdir -p "$theirs/images" "$theirs/evals"
# One white pixel.
base64 -d > "$theirs/images/shop.png" <<< \
    iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII=
echo '{"platform": "web"}' > "$theirs/meta.json"
cat > "$theirs/trajectory_log.json" <<'END'
[
  {"uid": "tea", "intent": "Find the cheapest tea", "response": "$5",
   "steps": [{"img": "shop.png", "other": {"raw_action": "type [7] [tea] [1]"}}, {"img": "shop.png", "other": {"raw_action": "stop [$5]"}}]},
  {"uid": "cup", "intent": "Buy a cup", "response": "I bought it",
   "steps": [{"img": "shop.png", "other": {"raw_action": "stop [I bought it]"}}]},
  {"uid": "pot", "intent": "Buy a pot", "response": "",
   "steps": [{"img": "shop.png", "other": {"raw_action": "scroll [down]"}}, {"img": "shop.png"}]}
]
END
cat > "$theirs/evals/human.jsonl" <<'END'
{"task_uid": "tea", "task_idx": 0, "user_uid": "Ann", "annotation": "Success", "comment": ""}
{"task_uid": "cup", "task_idx": 1, "user_uid": "Ann", "annotation": "Failure", "comment": "bought nothing"}
{"task_uid": "pot", "task_idx": 2, "user_uid": "Ann", "annotation": "Failure", "comment": ""}
END

"$prill" convert agent-eval-refine "$theirs" -o "$out"
"$prill" score "$out/trajectories.jsonl" -o "$out/verdicts.jsonl" --judge self-report
"$prill" agree "$out/verdicts.jsonl" "$out/labels.jsonl" --trajectories "$out/trajectories.jsonl"
"$prill" report "$out/trajectories.jsonl" -o "$out/report.html" --verdicts "$out/verdicts.jsonl" --labels "$out/labels.jsonl"
