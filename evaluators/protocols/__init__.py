"""Published judge protocols as presets of one judge."""
