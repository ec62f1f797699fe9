"""Recorded turns of Mind2Web and MT-Mind2Web as an environment."""
