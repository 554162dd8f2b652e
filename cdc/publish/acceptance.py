"""Records that an operator has accepted DDL findings.

It writes to the progress topic under a transactional id of its own, so a running capture is not fenced.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.config.settings import Config
from cdc.kafka.client_options import patience_s
from cdc.kafka.producer import TransactionalProducer
from cdc.model.change_records import Record
from cdc.model.table_facts import AcceptedFindings
from cdc.model.topic_names import progress_topic
from cdc.progress.record_format import accepted_key, encode
from cdc.publish.publisher import INIT_TIMEOUT_S
from cdc.publish.topic_rules import CONTROL_BYTES_MAX


def accept(config: Config, accepted: Mapping[str, AcceptedFindings]) -> None:
    """Record the position up to which the findings of each table are accepted. Raises BrokerError."""
    records: list[Record] = [
        (accepted_key(config.name, table), encode(settled), None) for table, settled in sorted(accepted.items())
    ]
    producer = TransactionalProducer(config.kafka, f"{config.name}.ddl", message_bytes_max=CONTROL_BYTES_MAX)
    patience = patience_s(config.kafka)
    try:
        producer.init(INIT_TIMEOUT_S)
        producer.begin()
        producer.produce_all(progress_topic(config.name), 0, records)
        producer.flush(patience)
        producer.commit(patience)
    finally:
        producer.close()
