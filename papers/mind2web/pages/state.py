"""The observation of a recorded page: the actions already taken, the candidates by rank, and the
page itself.

The state is one text, so that an observation stores it like any page:

    Previous actions:
      [link]  Restaurants -> CLICK
    Their targets: 8612
    Candidates: 8635 8739 9370
    <html>…</html>

Candidates are `backend_node_id`s of the page's nodes, the best first. The actions are those of the
recording, not the agent's (teacher forcing, Self-MAP, ACL 2024, section on the task). If their
targets are known, a line lists them, with `-` for a lost target. If the target of the step is not
among the best candidates, no model is asked, and the candidates are on a separate line
(`Withheld:`). The website's topic (`Domain: Travel`, `Subdomain: Airlines`) precedes the candidates
if it is known.
"""

from __future__ import annotations

from dataclasses import dataclass

_PAST, _TARGETS, _WITHHELD, _CANDIDATES = (
    "Previous actions:",
    "Their targets:",
    "Withheld:",
    "Candidates:",
)
_DOMAIN, _SUBDOMAIN = "Domain:", "Subdomain:"
_INDENT = "  "
_LOST = "-"


@dataclass(frozen=True, slots=True)
class PageState:
    """A page, its candidates, and the actions already taken.

    Args:
        page: The page, as `cleaned_html`.
        candidates: The node ids of the candidates, the best first.
        past: The actions already taken, oldest first: `[role]  label -> OP: value`.
        targets: The node id of each of these actions, "" if it is lost. Empty: none is known.
        withheld: The candidates of a step that is not sent to a model; `candidates` is then empty.
        domain: The website's domain, "" where it is not known.
        subdomain: The website's subdomain, "" where it is not known.
    """

    page: str
    candidates: tuple[str, ...]
    past: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    domain: str = ""
    subdomain: str = ""

    def text(self) -> str:
        """Formats the state as one text, which `read_state` parses."""
        # so that no action can imitate another line
        past = [_INDENT + " ".join(action.splitlines()) for action in self.past]
        targets = (
            [" ".join([_TARGETS, *(target or _LOST for target in self.targets)])]
            if self.targets
            else []
        )
        withheld = [" ".join([_WITHHELD, *self.withheld])] if self.withheld else []
        about = [(_DOMAIN, self.domain), (_SUBDOMAIN, self.subdomain)]
        known = [" ".join([name, *said.split()]) for name, said in about if said]
        candidates = " ".join([_CANDIDATES, *self.candidates])
        return "\n".join([_PAST, *past, *targets, *withheld, *known, candidates, self.page])


def read_state(text: str) -> PageState:
    """Parses the text of a recorded page's state.

    Args:
        text: What `PageState.text` wrote.

    Returns:
        The state.

    Raises:
        ValueError: The text is not such a state.
    """
    head, found, rest = text.partition(f"\n{_CANDIDATES}")
    if not found or not head.startswith(_PAST):
        raise ValueError(
            f"not the state of a recorded page, which starts with {_PAST!r} and has a line "
            f"{_CANDIDATES!r}"
        )
    candidates, _, page = rest.partition("\n")
    lines = head.split("\n")[1:]
    # from the end, in the order that `PageState.text` writes
    subdomain, domain, withheld, targets = (
        lines.pop().removeprefix(name).split() if lines and lines[-1].startswith(name) else []
        for name in (_SUBDOMAIN, _DOMAIN, _WITHHELD, _TARGETS)
    )
    return PageState(
        page,
        tuple(candidates.split()),
        tuple(line.removeprefix(_INDENT) for line in lines),
        tuple("" if target == _LOST else target for target in targets),
        tuple(withheld),
        " ".join(domain),
        " ".join(subdomain),
    )
