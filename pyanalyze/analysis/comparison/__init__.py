"""Two runs side by side: was the work equal, and where did the change of its time come from?"""

__all__ = ["NOISE_FLOOR"]

#: Two runs of one program on one GPU differ by this much for reasons that no capture shows (clocks, temperature,
#: placement); a single run on each side cannot see below it.
NOISE_FLOOR = 0.02
