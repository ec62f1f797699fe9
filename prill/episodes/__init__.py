"""Rollouts: the loop, concurrent episodes, and the folder that records them."""
