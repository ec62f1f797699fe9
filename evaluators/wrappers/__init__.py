"""Wrappers that rewrite trajectories for a judge or extend its verdicts."""
