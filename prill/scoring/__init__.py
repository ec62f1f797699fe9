"""Several processes that judge together, so that a run is not bound by what one core can do."""
