"""What librdkafka says between calls: its error events and its log lines.

Authentication and TLS failures are only ever said here; the call that suffers from them merely times out. A
connection that breaks with one request under way is only ever said in a log line, at level info
(`rd_kafka_broker_conn_closed`, librdkafka 2.16). Knows nothing of transactions or topics.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from typing import Final

from confluent_kafka import KafkaError

from cdc.clock import Clock, SystemClock

EVENTS_MAX: Final = 16  # librdkafka repeats itself while it reconnects; the first few already say everything
REPEAT_S: Final = 60.0  # a broker that is away is logged this often, not ten times a second
REPEATS_MAX: Final = 256  # remembered log texts

REFUSING: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""A person must mend these: a wrong password or certificate does not get better with time."""

# The text of a broken connection ends in "(after 3ms in state CONNECT)", and there is no code for the state. In these
# states no request of ours can be under way; one broker of three being down must not count as a lost request.
_THREAD: Final = re.compile(r"^\[thrd:[^]]*\]: ")
_STATE: Final = re.compile(r"\(after \d+ms in state (\w+).*\)$")
_OUTAGE: Final = frozenset({"FAIL", "REQTMOUT", "ERROR"})
_DISTURBING: Final = frozenset({"FAIL", "REQTMOUT", "SESSTMOUT"})
_UNCONNECTED: Final = frozenset(
    {"INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY", "AUTH_HANDSHAKE", "AUTH_REQ"}
)


class RepeatFilter(logging.Filter):
    """Lets a text of librdkafka through once a minute; reconnecting repeats it several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[str, float] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is logged; the time and state at its end do not make it another text."""
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
LOG.addHandler(logging.NullHandler())  # else logging writes warnings to stderr when nobody has set it up
LOG.addFilter(RepeatFilter())


class ClientEvents:
    """What one client said lately. Is librdkafka's `error_cb` and its `logger`, in the thread that polls.

    Neither may raise: the exception would come out of whatever call is being served.
    """

    __slots__ = ("_clock", "_disturbed_s", "_errors", "_failure", "lost")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._disturbed_s: float | None = None
        self._errors: deque[KafkaError] = deque(maxlen=EVENTS_MAX)
        self._failure = ""
        self.lost: str | None = None
        """Why a request may have been lost, or be still on its way: the first broken connection or time-out."""

    def on_error(self, error: KafkaError) -> None:
        """Take an error event."""
        self._errors.append(error)

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """Take a log line; named and called as `logging.Logger.log` is.

        Facility FAIL is a broken connection, REQTMOUT requests without an answer. librdkafka suppresses a text that
        repeats within 30 s, so `lost` is never reset.
        """
        if facility in _DISTURBING:
            self._disturbed_s = self._clock.monotonic_s()
        if facility == "FAIL":
            self._failure = _THREAD.sub("", text)
        if self.lost is None and (facility == "REQTMOUT" or (facility == "FAIL" and _was_connected(text))):
            self.lost = _THREAD.sub("", text)
        # librdkafka calls a broker that is away an error, and a coordinator that is still loading worth a warning; for
        # us the one is an incident, which the daemon logs once, and the other the first second of a new broker.
        passing = facility in _OUTAGE or (facility == "GETPID" and text.endswith("retrying"))
        LOG.log(min(level, logging.INFO) if passing else level, form, facility, client, text)

    def disturbed_within(self, seconds: float) -> bool:
        """Whether a connection or a request failed, or a group's session timed out, so recently."""
        return self._disturbed_s is not None and self._clock.monotonic_s() - self._disturbed_s <= seconds

    def clear(self) -> None:
        """Forget the reasons: what was said while connecting is of no interest once connected."""
        self._errors.clear()
        self._failure = ""

    def refusal(self) -> KafkaError | None:
        """The latest event that only a person can mend."""
        return next((error for error in reversed(self._errors) if error.name() in REFUSING), None)

    def reason(self) -> str:
        """The latest failure of a connection, as librdkafka says it, or nothing.

        From the log, since a listener that wants TLS or SASL merely closes the connection, which is no error event.
        """
        return self._failure


def _was_connected(text: str) -> bool:
    state = _STATE.search(text)
    return state is None or state[1] not in _UNCONNECTED
