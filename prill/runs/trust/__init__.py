"""Runs that measure how reliable judges are."""
