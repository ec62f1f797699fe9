"""Recorded pages as models read them: cut around candidates, as text, with choices (Mind2Web and what follows it)."""
