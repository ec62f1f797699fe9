"""Mind2Web and MT-Mind2Web (arXiv 2306.06070, ACL 2024): recorded pages, agents that act on them,
and the training of their models.
"""
