"""Settings: cdc.toml and the environment, read once, frozen, masked."""
