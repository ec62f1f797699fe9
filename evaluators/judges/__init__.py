"""Pages of judges, and their prompts."""
