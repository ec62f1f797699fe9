"""SteP (arXiv 2310.03720), a stack of small policies. `agent.py` holds the agent, `library.py` the
policy files.
"""
