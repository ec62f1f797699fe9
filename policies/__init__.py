"""Policies for the one loop."""
