"""Diagnosis for `cdc why` and HTTP: reads the evidence, and names the causes of a lag, a stop or a growing slot."""
