from __future__ import annotations

import socket

import pytest

from cdc.errors import LocalError
from cdc.local.ports import choose_ports, is_free


def test_a_remembered_port_is_kept_while_it_is_free() -> None:
    ports = choose_ports(["kafka"], wanted={}, remembered={"kafka": 25000}, free=lambda _: True, pick=lambda a, _: a)

    assert ports == {"kafka": 25000}


def test_a_remembered_port_that_is_taken_is_replaced() -> None:
    ports = choose_ports(
        ["kafka"], wanted={}, remembered={"kafka": 25000}, free=lambda p: p != 25000, pick=lambda a, _: a
    )

    assert ports == {"kafka": 21000}


def test_two_roles_never_get_one_port() -> None:
    picks = iter([21000, *range(21000, 23000)])

    ports = choose_ports(["a", "b"], wanted={}, remembered={}, free=lambda _: True, pick=lambda *_: next(picks))

    assert len(set(ports.values())) == 2


def test_a_wanted_port_is_not_given_to_another_role() -> None:
    ports = choose_ports(
        ["controller", "kafka"],
        wanted={"kafka": 9092},
        remembered={"controller": 9092},
        free=lambda _: True,
        pick=lambda a, _: a,
    )

    assert ports == {"controller": 21000, "kafka": 9092}


def test_a_wanted_port_that_is_taken_is_an_error_that_names_it() -> None:
    with pytest.raises(LocalError, match="port 9092") as caught:
        choose_ports(["kafka"], wanted={"kafka": 9092}, remembered={}, free=lambda _: False)

    assert "9092" in caught.value.command


def test_no_free_port_is_an_error() -> None:
    with pytest.raises(LocalError, match="no free port"):
        choose_ports(["kafka"], wanted={}, remembered={}, free=lambda _: False)


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free(port)
    assert is_free(port)
