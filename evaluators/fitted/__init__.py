"""Judges fitted to labels, and calibration of scores."""
