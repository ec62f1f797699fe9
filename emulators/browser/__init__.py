"""A web browser (Chromium) as an environment."""
