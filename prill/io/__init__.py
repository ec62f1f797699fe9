"""What is read and what is written: lines, kinds of files, faults in them, and outputs that destroy nothing."""
