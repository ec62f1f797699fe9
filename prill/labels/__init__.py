"""Labels of several people as one truth."""
