"""How good judges are: agreement with labels, comparisons, attacks."""
