"""What lives only as long as the process that made it: folders, and images that were handed over in memory."""
