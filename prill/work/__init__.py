"""Work over many items: several at a time, in this process or by Ray, until it is stopped."""
