"""Sinks whose kind another package provides: ``[sinks.NAME] kind = "..."`` names an entry point of `tailrace.sinks`."""
