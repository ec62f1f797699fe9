"""What a trainer does with the reward service: rewards over HTTP as OpenRLHF and slime ask for
them, and none where none is.

Run, in two terminals:
    prill serve examples/reward_service/service.toml
    python examples/reward_service/train.py http://127.0.0.1:8700
(OPENAI_BASE_URL says where the judge's model is; python -m prill.testing.endpoint.server is one for
trying it out.)
"""

import json
import sys
import urllib.error
import urllib.request
from typing import Any

from prill import Observation, Task, Trajectory
from prill.refine.rewards import to_json


def ask(url: str, body: object) -> Any:
    """The answer, or None where there is no reward: no trainer may take that for 0."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        print(f"  {error.code}: {json.load(error)['error']['message']}")
        return None


def episode(number: int, page: str | None) -> str:
    """A finished attempt as the label that travels with the request."""
    return to_json(
        Trajectory(
            id=f"buy-{number}",
            task=Task(goal=f"Buy product {number}"),
            final=Observation(text=page),
        )
    )


if __name__ == "__main__":
    service = sys.argv[1]
    labels = [
        episode(0, "Order placed. truth=success"),
        episode(1, "Your cart. truth=failure"),
        episode(2, None),
    ]
    for label in labels:
        rewards = ask(
            f"{service}/get_reward", {"query": ["bought"], "prompts": [""], "labels": [label]}
        )
        print("OpenRLHF", rewards and rewards["rewards"])
    print(
        "slime",
        [
            ask(f"{service}/rm", {"prompt": "", "response": "bought", "label": label})
            for label in labels[:2]
        ],
    )
