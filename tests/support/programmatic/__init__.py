"""Programmatic models. They read page and goal in a prompt and solve MiniWoB++ tasks, to test
agents without a language model.
"""
