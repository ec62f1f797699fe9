"""Planning a screen at a time, and mending the earliest wrong step in the next attempt (arXiv 2310.08740)."""
