"""Conversations with generated web sites, in the format of MT-Mind2Web: to try the whole of it
without the data set.
"""

from tests.support.conversations.maker import COUNTS, Split, conversations, write_conversations

__all__ = ["COUNTS", "Split", "conversations", "write_conversations"]
