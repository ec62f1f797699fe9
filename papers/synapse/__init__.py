"""Synapse: solutions of similar tasks, found in a memory, are shown as turns of the same chat."""
