"""Unit tests of the changes of TPC-H."""
