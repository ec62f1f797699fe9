"""Judges fitted to labels, and scores put right by them."""
