"""Folders of a lake: two tables never share one, and every file system accepts the names."""

from __future__ import annotations

import pytest

from cdc.model.topic_names import data_topic
from sinks.warehouse.lake import layout


def test_folders_are_the_documented_ones() -> None:
    assert layout.archive("shop.public.orders") == "archive/shop.public.orders"
    assert layout.mirror("public", "orders") == "mirror/public.orders"
    assert layout.history("public", "orders") == "history/public.orders"
    assert layout.view("revenue") == "views/revenue/g1"
    assert layout.view("revenue", 2) == "views/revenue/g2"
    assert layout.cut_file(7) == "000000000007.json"


def test_no_two_tables_share_a_folder() -> None:
    names = ["a", "A", "a.b", "a-2eb", "../x", "", "ü", "a b", "x" * 63, "ü" * 63, "ü" * 62 + "y", "%2e", "_cuts"]
    folders = [layout.mirror(namespace, table) for namespace in names for table in names]

    assert len(set(folders)) == len(folders)
    assert all(name.count("/") == 1 and len(name.encode()) <= 255 and ".." not in name[:9] for name in folders)


@pytest.mark.parametrize(
    "split", [("public", "orders"), ("a.b", "c"), ("a", "b.c"), ("", "c"), (".", "."), ("ü." * 30, "." * 60)]
)
def test_schema_and_name_are_distinguished_in_the_topic(split: tuple[str, str]) -> None:
    assert layout.split_table(".".join(split), data_topic("shop", *split)) == split


def test_a_table_of_another_topic_is_split_at_its_first_dot() -> None:
    assert layout.split_table("a.b.c", "shop.other") == ("a", "b.c")
    assert layout.split_table("orders", "orders") == ("orders", "")


@pytest.mark.parametrize(
    ("file", "cut"),
    [
        ("000000000012.json", 12),
        ("1000000000000.json", 10**12),
        ("current.json", None),
        (".000000000012.json.tmp", None),
        ("000000000012", None),
        ("00000000012x.json", None),
        ("12.json", None),
    ],
)
def test_cut_of_a_file_is_in_its_name(file: str, cut: int | None) -> None:
    assert layout.cut_of(file) == cut
