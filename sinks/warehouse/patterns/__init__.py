"""Row patterns of views, `MATCH_RECOGNIZE`: reads the clause, compiles the pattern, and matches the rows. Pure."""
