#!/usr/bin/env bash
# Three agents of the literature without a key: a small model in this process plays five tasks in a real browser as each of
# them. It is far too small for their prompts, and the tables say so; what is shown is that every episode comes to its end.
# The settings keep prompts and replies short, for the model reads some hundred tokens a second.
# Run: examples/agents_embedded.sh DIR   (needs Chromium and the embedded model; see README)
# Others: TASKS=book-flight MODEL=gpt-4o examples/agents_embedded.sh DIR   (tasks that Synapse has exemplars of)
set -euo pipefail
out=${1:?folder for the results}
prill=${PRILL:-.venv/bin/prill}
tasks=${TASKS:-click-button,click-dialog,click-link,click-tab,focus-text}

play() {
  "$prill" papers bench miniwob --policy "$1" --model "${MODEL:-embedded}" --tasks "$tasks" --seeds 0 --trials 1 --text html \
    --workers 1 --max-steps 3 -o "$out/$1" "${@:2}"
}

play step --policy.examples 0 --no-policy.reasoning --policy.max-tokens 24
play structured-reflection --no-policy.paraphrase --policy.max-tokens 32
play synapse --policy.exemplars 1 --policy.max-tokens 48
