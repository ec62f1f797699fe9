"""HTML pages: reports and the annotation UI."""
