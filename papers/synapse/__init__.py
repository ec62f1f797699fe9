"""Synapse: retrieves solutions of similar tasks from a memory and shows them as earlier turns of
the chat.
"""
