"""A topic setting that weakens the guarantees of the log; `cdc.publish.weak_topics` detects them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

COMMANDS_SHOWN: Final = 5


def unaccepted(found: Iterable[Mapping[str, Any]], *, unreplicated: bool) -> list[Mapping[str, Any]]:
    """Return documents without those about few replicas, if the configuration accepts these."""
    return [one for one in found if not (unreplicated and one["setting"].endswith("replication factor"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakSetting:
    """One setting that is too weak in the same way for some topics.

    Attributes:
        topics: their names.
        commands: one for each topic, where a command can change the setting.
    """

    setting: str
    found: str
    wanted: str
    topics: tuple[str, ...]
    commands: tuple[str, ...]

    def __str__(self) -> str:
        what = f"topic {self.topics[0]!r}"
        if len(self.topics) > 1:
            what = f"{len(self.topics)} topics ({self.topics[0]!r}, ...)"
        return f"{what}: {self.setting.removeprefix('internal ')} is {self.found}, must be {self.wanted}"

    @property
    def command(self) -> str:
        """The first few commands, a line each."""
        return "\n".join(dict.fromkeys(self.commands[:COMMANDS_SHOWN]))

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document for /status and logs."""
        return {
            "setting": self.setting,
            "found": self.found,
            "wanted": self.wanted,
            "topics": len(self.topics),
            "topic": self.topics[0],
            "command": self.commands[0],
        }
