"""The page for many runs, while their files grow."""
