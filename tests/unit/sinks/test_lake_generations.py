"""Which generation of a view is active, and which is built beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from sinks.warehouse.lake.manifest import Unbuilt, ViewState
from sinks.warehouse.views.definition import View, parse_view
from sinks.warehouse.views.generations import INPUT_SWAPPED, REPLACED, ROLLED_BACK, Decided, decide, swapped

_OLD, _NEW, _THIRD = "select id from orders", "select id, note from orders", "select id, total from orders"


def view(sql: str, name: str = "v") -> View:
    return parse_view(Path(f"{name}.sql"), sql)


def state(sql: str, generation: int = 1, reason: str = "", newest: int = 0) -> ViewState:
    return ViewState(
        version=3,
        generation=generation,
        reason=reason,
        cut=7,
        sql_sha="x",
        text=view(sql).text_sha,
        newest=newest,
    )


def sha(sql: str) -> str:
    return view(sql).text_sha


def test_first_generation_and_an_unchanged_one_are_the_files_text() -> None:
    assert decide([view(_OLD)], {}, {}) == Decided({}, {"v": sha(_OLD)})
    assert decide([view(_OLD)], {"v": state(_OLD)}, {}) == Decided({}, {"v": sha(_OLD)})


def test_changed_text_is_built_beside_the_old_one_that_goes_on_by_its_own() -> None:
    assert decide([view(_NEW)], {"v": state(_OLD)}, {}) == Decided({}, {"v": sha(_OLD), "v~2": sha(_NEW)})


def test_a_header_is_no_text_and_a_dialect_is() -> None:
    assert sha(f"-- key: id\n-- publish: topic\n{_OLD}\n") == sha(_OLD)
    assert sha(f"-- dialect: postgres\n{_OLD}") != sha(_OLD)


def test_candidate_serves_when_it_is_as_of_the_newest_cut_and_not_before() -> None:
    late = {"v": state(_OLD), "v~2": state(_NEW, 2, "a value does not fit")}
    ready = {"v": state(_OLD), "v~2": state(_NEW, 2)}

    assert decide([view(_NEW)], late, {}) == Decided({}, {"v": sha(_OLD), "v~2": sha(_NEW)})
    assert decide([view(_NEW)], ready, {}) == Decided({"v": 2}, {"v": sha(_NEW)})


def test_manual_candidate_is_maintained_until_it_is_requested() -> None:
    manual, ready = view(f"-- swap: manual\n{_NEW}"), {"v": state(_OLD), "v~2": state(_NEW, 2)}

    assert decide([manual], ready, {}) == Decided({}, {"v": sha(_OLD), "v~2": sha(_NEW)})
    assert decide([manual], ready, {"v": 2}) == Decided({"v": 2}, {"v": sha(_NEW)})


def test_swap_keeps_the_old_version_and_recomputes_dependent_views() -> None:
    reader = view("select * from v", "w")
    before = {"v": state(_OLD), "v~2": state(_NEW, 2), "w": state("select * from v")}

    found = swapped(before, decide([view(_NEW), reader], before, {}), [view(_NEW), reader])

    assert found["v"] == before["v~2"]
    assert found["v~1"] == structs.replace(before["v"], reason=REPLACED)
    assert found["w"].reason == INPUT_SWAPPED
    assert "v~2" not in found


def test_rollback_is_brought_up_first_and_is_not_undone_by_the_file() -> None:
    files = [view(_NEW)]
    served = {"v": state(_NEW, 2), "v~1": state(_OLD, 1, REPLACED)}
    assert decide(files, served, {}) == Decided({}, {"v": sha(_NEW)})

    assert decide(files, served, {"v": 1}) == Decided({}, {"v": sha(_NEW), "v~1": sha(_OLD)})
    fresh = served | {"v~1": state(_OLD, 1)}
    decided = decide(files, fresh, {"v": 1})
    assert decided == Decided({"v": 1}, {"v": sha(_OLD)})

    back = swapped(fresh, decided, files)
    assert back["v~2"].reason == ROLLED_BACK
    assert decide(files, back, {}) == Decided({}, {"v": sha(_OLD)}), "the file's text must not serve by itself again"
    assert decide(files, back, {"v": 2}).texts["v~2"] == sha(_NEW)


def test_edit_of_a_candidate_gives_another_number_and_forgets_the_one_between() -> None:
    before = {"v": state(_OLD, newest=2), "v~2": state(_NEW, 2, "it fails")}

    decided = decide([view(_THIRD)], before, {})

    assert decided == Decided({}, {"v": sha(_OLD), "v~3": sha(_THIRD)})
    assert "v~2" not in swapped(before, decided, [view(_THIRD)])
    gone = {"v": state(_OLD, newest=3)}
    assert "v~4" in decide([view(_THIRD)], gone, {}).texts, "a table that was there is not written again"


@pytest.mark.parametrize("wish", [1, 9])
def test_wish_for_what_serves_or_is_not_there_changes_nothing(wish: int) -> None:
    assert decide([view(_OLD)], {"v": state(_OLD)}, {"v": wish}) == Decided({}, {"v": sha(_OLD)})


def test_candidate_that_cannot_be_built_keeps_its_number_until_its_text_changes() -> None:
    """Another number each time would be another candidate, and each would ask for a cut of its own."""
    before = {"v": state(_OLD, newest=2)}
    failed = {"v~2": Unbuilt(reason="a value does not fit", text=sha(_NEW))}

    assert decide([view(_NEW)], before, {}, failed) == Decided({}, {"v": sha(_OLD), "v~2": sha(_NEW)})
    assert decide([view(_THIRD)], before, {}, failed) == Decided({}, {"v": sha(_OLD), "v~3": sha(_THIRD)})
