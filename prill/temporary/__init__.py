"""What lives only as long as the process that made it."""
