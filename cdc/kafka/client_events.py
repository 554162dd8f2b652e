"""Collects the error events and log lines that librdkafka emits between calls.

librdkafka reports authentication and TLS failures only here; the affected call merely times out. It reports a
connection that breaks during a request only in a log line at level info (`rd_kafka_broker_conn_closed`, librdkafka
2.16). This module knows nothing about transactions or topics.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

from cdc.clock import Clock, SystemClock
from cdc.errors import CredentialUnavailable

EVENTS_MAX: Final = 16  # librdkafka repeats events while it reconnects; the first few contain all information
REPEAT_S: Final = 60.0  # an unreachable broker is logged this often, not ten times a second
REPEATS_MAX: Final = 256  # remembered log texts

REFUSING: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""Only an operator can fix these errors: a wrong password or certificate stays wrong."""

REJECTING: Final = REFUSING - {"_SSL"}
"""These can mean a password that is rotated at this moment."""

# The text about a broken connection ends in "(after 3ms in state CONNECT)"; there is no code for the state. In these
# states no request can be in flight. One unreachable broker of three must not count as a lost request.
_THREAD: Final = re.compile(r"^\[thrd:[^]]*\]: ")
_STATE: Final = re.compile(r"\(after \d+ms in state (\w+).*\)$")
_OUTAGE: Final = frozenset({"FAIL", "REQTMOUT", "ERROR"})
_DISTURBING: Final = frozenset({"FAIL", "REQTMOUT", "SESSTMOUT"})
_UNCONNECTED: Final = frozenset(
    {"INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY", "AUTH_HANDSHAKE", "AUTH_REQ"}
)


class RepeatFilter(logging.Filter):
    """Passes each text of librdkafka once a minute; while it reconnects, it repeats a text several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[str, float] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is logged; the time and state at the end of a text are ignored."""
        text = _STATE.sub("", record.getMessage())
        last_s = self._seen.get(text)
        if last_s is not None and 0 <= record.created - last_s < REPEAT_S:
            return False
        self._seen[text] = record.created
        self._seen.move_to_end(text)
        if len(self._seen) > REPEATS_MAX:
            self._seen.popitem(last=False)
        return True


LOG: Final = logging.getLogger("librdkafka")
LOG.addHandler(logging.NullHandler())  # otherwise logging writes warnings to stderr without a configured handler
LOG.addFilter(RepeatFilter())


class ClientEvents:
    """The recent events of one client: librdkafka's `error_cb` and `logger`, called in the thread that polls.

    Neither may raise: the exception would surface in an unrelated call into the client.
    """

    __slots__ = (
        "_clock",
        "_disturbed_s",
        "_errors",
        "_failure",
        "_rejected",
        "changing",
        "credential_failure",
        "lost",
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._disturbed_s: float | None = None
        self._errors: deque[KafkaError] = deque(maxlen=EVENTS_MAX)
        self._failure = ""
        self.credential_failure: CredentialUnavailable | None = None
        """Why the client has no new OAuth token or password; None if it has."""
        self.changing = ""
        """The setting of the file or command that gives the SASL password; empty if the password never changes."""
        self._rejected: Callable[[], None] | None = None
        self.lost: str | None = None
        """Why a request may be lost or still in flight: the first broken connection or timeout."""

    def on_error(self, error: KafkaError) -> None:
        """Take an error event."""
        self._errors.append(error)
        if self._rejected is not None and error.name() in REJECTING:
            self._rejected()

    def follow(self, changing: str, rejected: Callable[[], None]) -> None:
        """Call `rejected` for each error that can mean a rejected password. It must not call the client."""
        self.changing, self._rejected = changing, rejected

    def renewed(self) -> None:
        """Forget rejections, because the client has another password. Called in any thread."""
        self.credential_failure = None
        self._errors = deque((one for one in list(self._errors) if one.name() not in REJECTING), maxlen=EVENTS_MAX)

    def credential_failed(self, error: CredentialUnavailable | None) -> None:
        """Take the result of a request for an OAuth token or password. The client goes on with what it has."""
        self.credential_failure = error

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """Take a log line; named and called as `logging.Logger.log` is.

        Facility FAIL means a broken connection, REQTMOUT a request without an answer. librdkafka suppresses a text
        that repeats within 30 s, so `lost` is never reset.
        """
        if facility in _DISTURBING:
            self._disturbed_s = self._clock.monotonic_s()
        if facility == "FAIL":
            self._failure = _THREAD.sub("", text)
        if self.lost is None and (facility == "REQTMOUT" or (facility == "FAIL" and _was_connected(text))):
            self.lost = _THREAD.sub("", text)
        # librdkafka logs an unreachable broker as an error and a loading coordinator as a warning. The daemon already
        # logs the first once per incident, and the second is normal in the first second of a new broker.
        passing = facility in _OUTAGE or (facility == "GETPID" and text.endswith("retrying"))
        LOG.log(min(level, logging.INFO) if passing else level, form, facility, client, text)

    def disturbed_within(self, seconds: float) -> bool:
        """Return whether a connection, a request or a group session failed within the last `seconds`."""
        return self._disturbed_s is not None and self._clock.monotonic_s() - self._disturbed_s <= seconds

    def clear(self) -> None:
        """Forget the events of the connection phase; once connected, they are obsolete."""
        self._errors.clear()
        self._failure = ""

    def refusal(self) -> KafkaError | None:
        """Return the latest event that only an operator can fix."""
        return next((error for error in reversed(self._errors) if error.name() in REFUSING), None)

    def reason(self) -> str:
        """Return librdkafka's text about the latest broken connection, or an empty string.

        It comes from the log: a listener that requires TLS or SASL only closes the connection, without an error event.
        """
        return self._failure


def _was_connected(text: str) -> bool:
    state = _STATE.search(text)
    return state is None or state[1] not in _UNCONNECTED
