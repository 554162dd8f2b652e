"""What a run of the fuzzer prints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.sqlfuzz.fuzz import described
from tests.sqlfuzz.outcome import REASONED

if TYPE_CHECKING:
    from tests.sqlfuzz.fuzz import Fuzz
    from tests.sqlfuzz.outcome import Tally

_REASONS_MAX: Final = 60
_INVALID_MAX: Final = 20


def report(fuzz: Fuzz, seed: int) -> str:
    """Return the counts, the refusals by reason, and each class of difference."""
    lines = [f"seed {seed}"]
    for what, tally in (("expressions", fuzz.expressions), ("queries", fuzz.queries)):
        lines += _counts(what, tally)
    lines.append(f"constructs that views refuse: {', '.join(sorted(fuzz.refused)) or 'none'}")
    for case in fuzz.differences.cases:
        lines += [described(case), f"  {fuzz.differences.counts[case.node.features]} of this class"]
    for text, count in fuzz.invalid.most_common(_INVALID_MAX):
        lines.append(f"invalid, {count} times: {text[:400]}")
    return "\n".join(lines)


def _counts(what: str, tally: Tally) -> list[str]:
    shown = ", ".join(f"{count} {result}" for result, count in tally.results.most_common())
    lines = [f"{tally.results.total()} {what}: {shown}"]
    for result in REASONED:
        reasons = Counter({why: count for (found, why), count in tally.reasons.items() if found == result})
        lines += [f"  {result} {count} times: {why[:200]}" for why, count in reasons.most_common(_REASONS_MAX)]
    return lines
