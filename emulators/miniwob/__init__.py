"""MiniWoB++ in Chromium."""
