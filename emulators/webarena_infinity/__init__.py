"""WebArena-Infinity: applications that run on any machine, with tasks and verifiers."""
