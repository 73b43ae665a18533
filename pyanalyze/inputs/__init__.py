"""Everything that is read: captures, reports of nsys, packs, samples, configuration, saved reports, units of work."""
