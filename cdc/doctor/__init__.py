"""The preflight: facts of source and broker in, findings with their remedies out. Changes nothing."""
