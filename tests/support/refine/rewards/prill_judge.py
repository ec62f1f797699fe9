"""What makes the judge known to verifiers, as docs/how-to/rewards.md shows it."""

from prill.refine.rewards.verifiers import PrillJudge

__all__ = ["PrillJudge"]
