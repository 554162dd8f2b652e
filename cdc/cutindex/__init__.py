"""Reads the cut index, which maps an LSN to an offset in every partition."""
