"""Builds the dead-letter queue of a sink from its configuration."""

from __future__ import annotations

from cdc.clock import Clock
from cdc.config.settings import Applied, Config
from sinks.deadletters.dead_letter_queue import KafkaDeadLetters, Policy
from sinks.deadletters.dead_letter_topic import DeadLetterTopic
from sinks.state.state_topic import StateTopic


def dead_letters(config: Config, sink: str, settings: Applied, clock: Clock) -> KafkaDeadLetters:
    """Open the queue and create missing topics. Close it.

    Raises TopicMismatch, BrokerRefused, BrokerUnreachable.
    """
    policy = Policy(sink, stop=settings.on_refused == "stop", keys_max=settings.parked_keys_max)
    return KafkaDeadLetters(StateTopic(config, sink), DeadLetterTopic(config, sink), policy, clock)
