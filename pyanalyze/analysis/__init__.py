"""From tables to answers: sharing mode, residency, occupancy, interference, advice, comparison, gate."""
