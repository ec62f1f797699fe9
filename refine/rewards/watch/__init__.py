"""Looks on while a verdict is used as a reward, and says when it goes wrong."""
