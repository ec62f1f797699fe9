"""A fake iOS simulator below the real fb-idb client: the command line and the gRPC service of idb_companion."""
