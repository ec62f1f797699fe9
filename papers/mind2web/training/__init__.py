"""Training on recorded pages: a ranker of candidates, and a planner that answers a policy's
prompts.
"""
