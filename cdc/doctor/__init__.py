"""The preflight checks: from facts about source, broker and sinks to findings with their repair. Changes nothing."""
