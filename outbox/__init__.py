"""Events with a contract: what applications write in their own transaction, and what becomes of it.

An application needs `outbox.writer` (any DB-API cursor), `outbox.session` (SQLAlchemy), `outbox.consumer` and
`outbox.event_store`; these know nothing of the service and no Kafka client.
"""
