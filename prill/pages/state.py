"""What an agent is shown of a recorded page: the actions already taken, the candidates by rank, and the page itself.

All of it is one text, so that an observation holds it as it holds any page:

    Previous actions:
      [link]  Restaurants -> CLICK
    Candidates: 8635 8739 9370
    <html>…</html>

Candidates are `backend_node_id`s of the page's nodes, the best first. The actions are those of the recording, not the agent's:
each step is asked for as if all before it had been right (teacher forcing, Self-MAP, ACL 2024, section on the task).
"""

from __future__ import annotations

from dataclasses import dataclass

_PAST, _CANDIDATES, _INDENT = "Previous actions:", "Candidates:", "  "


@dataclass(frozen=True, slots=True)
class PageState:
    """A page, its candidates (the best first), and the actions already taken (`[role]  label -> OP: value`, oldest first)."""

    page: str
    candidates: tuple[str, ...]
    past: tuple[str, ...] = ()

    def text(self) -> str:
        """The state as one text; `read_state` reads it."""
        past = [_INDENT + " ".join(action.splitlines()) for action in self.past]  # so none can pass for another line
        return "\n".join([_PAST, *past, " ".join([_CANDIDATES, *self.candidates]), self.page])


def read_state(text: str) -> PageState:
    """The state that a text tells. Raises ValueError where it is none."""
    head, found, rest = text.partition(f"\n{_CANDIDATES}")
    if not found or not head.startswith(_PAST):
        raise ValueError(f"no state of a recorded page: it begins with {_PAST!r} and has a line {_CANDIDATES!r}")
    candidates, _, page = rest.partition("\n")
    past = head.split("\n")[1:]
    return PageState(page, tuple(candidates.split()), tuple(action.removeprefix(_INDENT) for action in past))
