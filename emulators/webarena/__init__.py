"""WebArena: sites, tasks and oracle."""
