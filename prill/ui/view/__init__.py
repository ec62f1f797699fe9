"""The page of `prill view` for many runs, updated while their files grow."""
