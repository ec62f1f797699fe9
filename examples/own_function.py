"""A custom judge as a function: success if the last page contains a phrase.

Run: prill score t.jsonl -o v.jsonl --judge examples/own_function.py:thanks
"""

import prill


# increase the version when the verdicts change
@prill.as_judge("thanks", version="1", screenshots=False)
async def thanks(trajectory: prill.Trajectory) -> bool | None:
    text = trajectory.observations[-1].text if trajectory.observations else None
    return None if text is None else "thank you" in text.lower()  # None: no verdict
