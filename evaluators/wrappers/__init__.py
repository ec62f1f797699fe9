"""Judges that are shown a rewritten trajectory."""
