"""Labels by hand: the file they go to, what an annotator may see and when, and the local page."""
