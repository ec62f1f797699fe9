"""Replies of the mock server to judges that ask for JSON, whatever is asked of a frame."""

from __future__ import annotations

import json
import re

_STATE = re.compile(r"^(?:Image \d+: )?State (\d+)", re.MULTILINE)


def reply(user_text: str) -> str:
    """Returns what the mock server writes after `Status: `: an object with an answer for each form.

    A frame's score goes by the number of its state, and a criterion is met by the last state shown.
    """
    if "[item " in user_text:
        return "yes"
    states = [int(number) for number in _STATE.findall(user_text)] or [0]
    grades = [
        {"state": i, "description": f"saw {i}", "score": i % 5 + 1, "scores": [i % 5 + 1]}
        for i in states
    ]
    return json.dumps(
        {
            "key_points": ["It is bought"],
            "criteria": [
                {
                    "criterion": 1,
                    "text": "It is bought",
                    "weight": 1,
                    "reason": "r",
                    "step": states[-1],
                    "met": "met",
                }
            ],
            "side_effects": [],
            "obstacle_reason": "",
            "obstacle": "none",
            **grades[-1],
            "thoughts": "so",
            "status": "success",
            "response": "goal-reached",
            "answer": "yes",
            "reason": "so",
            "step": states[-1],
        }
    )
