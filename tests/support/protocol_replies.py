"""Replies of the mock server to published protocols, with grades of WebJudge's frames."""

from __future__ import annotations

from prill.testing.endpoint.faults import marked_truth


def reply(user_text: str) -> str:
    """Returns what the mock server writes after `Status: `: the truth, in the requested grammar."""
    success = marked_truth(user_text) == "success"
    if "[key-points" in user_text and "[actions" not in user_text and "[steps" not in user_text:
        return "see below\n**Reasoning**: a form\n\n**Score**: 4"
    return "success" if success else "failure"
