"""One HTML page that shows trajectories, what several judges said of them, and what people said."""
