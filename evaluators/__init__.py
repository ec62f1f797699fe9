"""Judges: a trajectory in, a verdict out."""
