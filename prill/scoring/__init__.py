"""Many trajectories through one judge: in memory, as a stream, from files, in shards."""
