"""Replies of the mock server in the grammar that each published protocol asks for."""

from __future__ import annotations

from prill.testing.endpoint.faults import marked_truth


def reply(user_text: str) -> str:
    """Returns what the mock server writes after `Status: `: the truth, in the requested grammar."""
    success = marked_truth(user_text) == "success"
    if "<success>" in user_text:
        word = "Successful" if success else "Unsuccessful"
        return (
            f"see below\n<reasoning>It shows.</reasoning><success>{word}</success><side>No</side>"
            "<optimal>3. Somewhat Optimal</optimal><loop>No</loop>"
        )
    if "SUCCESS or NOT SUCCESS" in user_text:
        return f"see below\n{'SUCCESS' if success else 'NOT SUCCESS'}"
    if "Thought and Reward" in user_text:
        return f"see below\nReward: {5 if success else 2}"
    if "[key-points" in user_text and "[actions" not in user_text and "[steps" not in user_text:
        return "see below\n**Reasoning**: a form\n\n**Score**: 4"
    return "success" if success else "failure"
