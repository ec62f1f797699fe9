"""Playing: the loop, many episodes at a time, and the folder where they are recorded."""
