"""Registers the judge with verifiers, as docs/how-to/rewards.md shows."""

from prill.refine.rewards.verifiers import PrillJudge

__all__ = ["PrillJudge"]
