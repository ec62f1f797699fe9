"""A mock OpenAI-compatible endpoint with scripted replies and injected faults."""
