"""Runs a function for each view of a cut, several views at once. Each view follows the views it reads.

A cut's views are small queries of fixed cost: most of the time one view leaves a core idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from sinks.warehouse.views.definition import BoundView

AT_ONCE_MAX: Final = 4
"""Views that are computed at once: each holds its rows in the driver."""
_Lane = TypeVar("_Lane")
# Of the process: each thread that uses Spark has a thread of its own in the JVM, which does not end with it.
_POOL: Final = ThreadPoolExecutor(AT_ONCE_MAX, "views")


def run_each(views: Sequence[BoundView], lanes: Sequence[_Lane], work: Callable[[BoundView, _Lane], None]) -> None:
    """Call `work` for each view with a lane that no other call uses, and return when all are done.

    After the first error no view is started. It is raised when the started ones have ended.

    Args:
        views: they read each other, and views that are not here.
        lanes: one per view that may run at once; at least one.
        work: called in threads that are kept.
    """
    by_name = {view.name: view for view in views}
    order = TopologicalSorter({view.name: by_name.keys() & set(view.views.values()) for view in views})
    order.prepare()
    free = list(reversed(lanes))
    running: dict[Future[None], tuple[str, _Lane]] = {}
    waiting: list[str] = []
    places = {view.name: place for place, view in enumerate(views)}
    try:
        while order.is_active():
            waiting = sorted([*waiting, *order.get_ready()], key=places.__getitem__)
            while waiting and free:
                name, lane = waiting.pop(0), free.pop()
                running[_POOL.submit(work, by_name[name], lane)] = name, lane
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, lane = running.pop(future)
                future.result()
                free.append(lane)
                order.done(name)
    finally:
        wait(running)
