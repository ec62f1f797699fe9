"""From verdicts to better agents."""
