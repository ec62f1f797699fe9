"""The MindAct and Self-MAP agents: a tournament among the candidates of a recorded page, with a
memory of earlier turns.
"""
