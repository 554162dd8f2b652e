"""The sample shop of the demo and of `cdc dev`: schema, rows, a workload, views, and its sections of cdc.toml."""
