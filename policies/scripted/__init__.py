"""Episodes of MiniWoB++ by script, well or badly on purpose."""
