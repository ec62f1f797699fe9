"""The annotation UI: label file, visibility rules, and local page."""
