"""Screen models: a screenshot in, a native tool call out."""
