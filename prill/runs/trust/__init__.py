"""Runs that tell how far judges can be trusted."""
