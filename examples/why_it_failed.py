"""Reports what answers claim, why runs failed, and the answers to a custom question.

Run: .venv/bin/python examples/why_it_failed.py [MODEL]
"""

import sys
from collections import Counter

import prill

runs = list(prill.read_trajectories("datasets/samples/miniwob/trajectories.jsonl"))
outcomes = {
    label.id: label.success for label in prill.read_labels("datasets/samples/miniwob/labels.jsonl")
}

claims = Counter(claim.status for run in runs for claim in prill.check_claims(run))
print("claims:", dict(claims))

failed = [run for run in runs if outcomes.get(run.id) is False]
causes = [prill.find_cause(run) for run in failed]
print("causes:", dict(Counter(cause.code if cause else "none found" for cause in causes)))
for cluster in prill.cluster_failures({run.id: run.answer or "" for run in failed}, clusters=3):
    print(f"{len(cluster.ids)} like {cluster.medoid}, stability {cluster.stability:.2f}")

if len(sys.argv) > 1:  # asks a model at $OPENAI_BASE_URL
    judge = prill.judge(
        "ask",
        model=sys.argv[1],
        captioner="text",
        questions=[
            {"question": "Did the agent press a submit button?", "answer": "yes/no"},
            {"question": "How many fields did it fill in?", "answer": "number"},
            {"question": "What is on the page?", "answer": ["a form", "a list", "something else"]},
        ],
    )
    for verdict in prill.score(runs[:2], judge):
        for answer in (verdict.findings and verdict.findings.answers) or ():
            print(verdict.id, answer.question, answer.value, answer.step)
