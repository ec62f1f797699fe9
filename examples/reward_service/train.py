"""A client of the reward service. It requests rewards over HTTP as OpenRLHF and slime do, and
handles missing rewards.

Run, in two terminals:
    prill serve examples/reward_service/service.toml
    python examples/reward_service/train.py http://127.0.0.1:8700
(OPENAI_BASE_URL is the endpoint of the judge's model. `python -m prill.testing.endpoint.server`
starts a mock endpoint.)
"""

import json
import sys
import urllib.error
import urllib.request
from typing import Any

from prill import Observation, Task, Trajectory
from prill.refine.rewards import to_json


def ask(url: str, body: object) -> Any:
    """Returns the response, or None without a reward. A trainer must not treat None as 0."""
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
    """Returns a finished attempt as the label that is sent with the request."""
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
