"""A setting of topics that weakens what the log promises; `cdc.publish.weak_topics` finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

COMMANDS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakSetting:
    """One setting that is too weak in the same way for some topics.

    Attributes:
        topics: by name.
        commands: one for each of them, as far as a command can change it.
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
        """For /status and logs."""
        return {
            "setting": self.setting,
            "found": self.found,
            "wanted": self.wanted,
            "topics": len(self.topics),
            "topic": self.topics[0],
            "command": self.commands[0],
        }
