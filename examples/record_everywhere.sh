#!/usr/bin/env bash
# One policy on three platforms, judged and shown together: a web shop, an Android phone, an iOS simulator.
# Run: examples/record_everywhere.sh DIR
# The shop and the phones are this repository's own stand-ins below the real tools (Chromium, adb, idb); leave out --shop, --adb-port and
# --companion to use real ones. `prill devices` says what this machine has. The actions were written down beforehand; for a
# model that acts: --policy react --model M.
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
python=${PYTHON:-.venv/bin/python}
export PYTHONPATH=$(realpath "$(dirname "$0")/..")${PYTHONPATH:+:$PYTHONPATH} # for tests.support
mkdir -p "$out"

"$prill" rollout webarena --shop --tasks 1002,1006 --policy scripted -o "$out/web"

cat > "$out/by-hand.jsonl" <<'END'
{"id": "1", "task": {"id": "wifi", "goal": "Turn Wi-Fi off"}, "steps": [{"observation": {}, "action": {"kind": "click", "text": "tap Settings", "target": "[2] button 'Settings'"}}, {"observation": {}, "action": {"kind": "click", "text": "tap Wi-Fi", "target": "[4] switch 'Wi-Fi'"}}, {"observation": {}, "action": {"kind": "stop", "text": "done", "value": "Wi-Fi is off."}}]}
{"id": "2", "task": {"id": "home", "goal": "Open the settings"}, "steps": [{"observation": {}, "action": {"kind": "click", "text": "tap Settings", "target": "[2] Button 'Settings'"}}, {"observation": {}, "action": {"kind": "stop", "text": "done", "value": "The settings are open."}}]}
END

# The fake adb server prints its port and ends with this script.
coproc PHONE { exec "$python" -m tests.support.android --until-eof; }
read -r _ _ port _ <&"${PHONE[0]}"
"$prill" rollout android --adb-port "$port" --goal 'Turn Wi-Fi off' --policy replay --policy.trajectories "$out/by-hand.jsonl" -o "$out/android"

"$python" -m tests.support.ios --make "$out/simulators" > "$out/simulators.txt"
"$prill" rollout ios --companion "$out/simulators/idb_companion" --goal 'Open the settings' \
    --policy replay --policy.trajectories "$out/by-hand.jsonl" -o "$out/ios"

recorded=("$out"/{web,android,ios}/trajectories.jsonl)
"$prill" score "${recorded[@]}" -o "$out/verdicts.jsonl" --judge self-report
"$prill" report "${recorded[@]}" -o "$out/report.html" --verdicts "$out/verdicts.jsonl" --labels "$out/web/labels.jsonl"
