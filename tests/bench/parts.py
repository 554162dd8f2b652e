"""Measures the CPU of each part of the pipeline separately, on the backlog of the throughput run.

`client_threads` is the rest of the daemon's total: librdkafka's own threads (compression, checksums, sockets) and parts
that cannot be separated from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.capture.assembler import Assembler, BatchLimits, Unplanned
from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions
from cdc.kafka.producer import TransactionalProducer
from cdc.local.stack import Stack
from cdc.lsn import Lsn
from cdc.model.change_records import Record, StreamPosition, TopicBuffer
from cdc.publish.ledger import roll
from cdc.replication.stream import ReplicationSession
from tests.fixtures.capture.scripted_capture import no_side_topics

_ROWS = 100_000
_PARTITIONS = 4
_BEHIND_S = 0.005  # let the socket fill, as it does when the rest of the pipeline has work; waiting costs no CPU
_ROW_BYTES_MAX = 16 << 20


def measure_parts(stack: Stack, slot: str, publication: str, topic: str) -> dict[str, float]:
    """Return microseconds of CPU per row in the capture thread by part. `slot` needs a backlog of `_ROWS` rows."""
    frames: list[bytes] = []
    read_us = _cpu_us(lambda: frames.extend(_read(stack, slot, publication)))
    buffer = TopicBuffer(topic, _PARTITIONS)
    transcode_us = _cpu_us(lambda: _transcode(frames, buffer))
    hash_us = _cpu_us(lambda: [roll(0, records) for records in buffer.partitions])
    produce_us = _cpu_us(lambda: _produce(stack, topic, buffer.partitions))
    rows = sum(len(records) for records in buffer.partitions)
    parts = {"read": read_us, "transcode": transcode_us, "cut_index": hash_us, "produce": produce_us}
    return {name: round(us / rows, 2) for name, us in parts.items()}


def _cpu_us(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return (time.thread_time() - began_s) * 1e6


def _read(stack: Stack, slot: str, publication: str) -> list[bytes]:
    session = ReplicationSession(Secret(stack.postgres.dsn), application_name="bench", clock=SystemClock())
    frames: list[bytes] = []
    try:
        session.start(slot, publication, Lsn(0))
        while len(frames) < _ROWS:
            time.sleep(_BEHIND_S)
            frames += session.read(1.0)
    finally:
        session.close()
    return frames


def _transcode(frames: list[bytes], buffer: TopicBuffer) -> None:
    caps = BatchLimits(1 << 40, 1 << 60)
    assembler = Assembler(StreamPosition(Lsn(0)), epoch=1, caps=caps, on_truncate="stop", side=no_side_topics())
    options = TranscodeOptions("bench", "shop", _ROW_BYTES_MAX)
    at = 0
    while at < len(frames):
        at, stop = assembler.feed(frames, at)
        if isinstance(stop, Unplanned):
            schema = table_schema(stop.relation, ["id"], {}, EncodeOptions())
            assembler.plan(stop.relation, Transcoder(schema, buffer, options))


def _produce(stack: Stack, topic: str, partitions: list[list[Record]]) -> None:
    kafka = Kafka(bootstrap=stack.kafka.bootstrap)
    producer = TransactionalProducer(kafka, "bench.parts", message_bytes_max=_ROW_BYTES_MAX)
    producer.init(30)
    for start in range(0, max(map(len, partitions)), 5000):
        producer.begin()
        for index, records in enumerate(partitions):
            producer.produce_all(topic, index, records[start : start + 5000], None)
        producer.flush(30)
        producer.commit(30)
    producer.close()
