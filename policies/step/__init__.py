"""SteP (arXiv 2310.03720): a stack of small policies, each a prompt; see `policy.py` for the agent, `library.py` for the prompts."""
