"""SteP (arXiv 2310.03720), a stack of small policies: `agent.py` has the machine, `library.py` the
policies as files.
"""
