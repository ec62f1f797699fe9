"""Shared helpers of the format readers: records, images, chats, tool calls."""
