"""Lake tables on Spark: cuts of the log become an archive, mirrors, histories and views, all as of one LSN."""
