"""MiniWoB++ as an environment."""
