"""Dead letters of a sink: the records that a store refused, and later records of the same keys."""
