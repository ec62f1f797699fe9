"""A small customer service site of an airline (AirlineCRM of arXiv 2310.03720): five tasks, twenty
scenarios each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.step.airline.desk.server import AirlineDesk
    from prill.papers.step.airline.desk.world import SCENARIOS, TASKS, scenario, solution


__all__ = ["SCENARIOS", "TASKS", "AirlineDesk", "scenario", "solution"]
__getattr__, __dir__ = lazily(__name__)
