"""Tables of the core as polars frames, and parts of them: a window of time, one device, names replaced."""
