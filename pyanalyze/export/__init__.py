"""Files for other programs: tables, SQLite, nsys-stats CSV, packs."""
