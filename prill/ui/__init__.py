"""Pages to look at: reports, and the annotation UI; they share one look."""
