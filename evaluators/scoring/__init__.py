"""Scores many trajectories with one judge: in memory, as a stream, from files, in shards."""
