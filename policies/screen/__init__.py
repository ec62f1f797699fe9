"""Policies for screen models, which turn a screenshot into a native tool call."""
