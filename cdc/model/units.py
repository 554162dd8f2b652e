"""Writes sizes and times for people. Pure."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return e.g. ``1 table`` or ``12,000 tables``, for nouns whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count_bytes: float | None) -> str:
    """Return e.g. ``1.5 GiB``; empty for None."""
    if count_bytes is None:
        return ""
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """Return e.g. ``0.3 s``, ``12 s``, ``3 min``, ``2 h 5 min``, ``4 d 3 h``."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours < 2:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"
