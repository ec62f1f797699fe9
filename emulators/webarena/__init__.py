"""WebArena: its sites, its tasks, its oracle."""
