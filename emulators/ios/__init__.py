"""iOS simulators, through idb."""
