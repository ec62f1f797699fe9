"""Verbs that serve a judge over HTTP, and look at one that is served."""
