"""The HTML report: trajectories with verdicts and labels."""
