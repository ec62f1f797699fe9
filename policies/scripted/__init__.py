"""Scripted MiniWoB++ episodes, successful or failing on purpose."""
