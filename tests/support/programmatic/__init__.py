"""Models that answer by program: they read page and goal in a prompt and solve MiniWoB++ tasks, so
that agents can be tried.
"""
