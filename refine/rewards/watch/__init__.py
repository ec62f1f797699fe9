"""Reward monitoring: detects when a reward is over-optimised."""
