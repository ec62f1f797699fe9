"""Temporary folders and in-memory images of this process."""
