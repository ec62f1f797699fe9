"""Verbs about files: what they hold, and other shapes of them."""
