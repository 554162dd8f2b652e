"""Compares the mirrors of a lake with their topics; shares no code with the driver."""
