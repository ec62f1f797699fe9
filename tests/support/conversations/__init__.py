"""Conversations with generated websites, in the format of MT-Mind2Web, to test the whole pipeline
without the data set.
"""

from tests.support.conversations.maker import COUNTS, Split, conversations, write_conversations

__all__ = ["COUNTS", "Split", "conversations", "write_conversations"]
