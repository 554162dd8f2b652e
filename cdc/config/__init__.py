"""Settings from cdc.toml and the environment: read once, frozen, secrets masked."""
