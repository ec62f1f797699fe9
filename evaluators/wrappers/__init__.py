"""Judges that see a rewritten trajectory."""
