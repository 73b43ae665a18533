"""Text that leaves the program, and text that comes from outside: escaping, formats, times."""
