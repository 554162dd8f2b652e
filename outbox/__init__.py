"""The outbox: a library for applications that write and consume events, and the stage of capture that publishes them.

Applications import `outbox.writer` (any DB-API cursor), `outbox.session` (SQLAlchemy), `outbox.consumer` and
`outbox.event_store`. These modules import neither the service nor a Kafka client.
"""
