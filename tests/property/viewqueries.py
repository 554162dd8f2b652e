"""Random queries over `viewworld`'s shop: joins of any kind, conditions, subqueries, groups, windows and unions."""

from __future__ import annotations

import random
from typing import Final

from tests.property.viewworld import COLUMNS

_TABLES: Final = tuple(COLUMNS)
_NUMBERS: Final = ("bigint", "int")


class Query:
    """One query; `sql` is Spark's."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._aliases = 0
        kind = self._random.random()
        if kind < 0.12:
            operator = self._random.choice(["union all", "union", "except", "intersect"])
            self.sql = f"{self._one_column()} {operator} {self._one_column()}"
        else:
            self.sql = self._select()

    def _select(self) -> str:
        seen, source = self._from()
        where = self._where(seen)
        pick = self._random
        columns = pick.sample(seen, min(len(seen), pick.randrange(1, 4)))
        shape = pick.random()
        if shape < 0.4:
            listed = ", ".join(f"{column} as c{index}" for index, (column, _) in enumerate(columns))
            return f"select {pick.choice(['', '', 'distinct '])}{listed} from {source}{where}"
        if shape < 0.55:
            over = f"partition by {columns[0][0]} order by {', '.join(sorted(column for column, _ in seen))}"
            listed = ", ".join(f"{column} as c{index}" for index, (column, _) in enumerate(columns))
            inner = f"select {listed}, row_number() over ({over}) as r from {source}{where}"
            return inner if pick.random() < 0.5 else f"select * from ({inner}) w where r <= 2"
        grouped = ", ".join(column for column, _ in columns[:2])
        listed = ", ".join(f"{column} as c{index}" for index, (column, _) in enumerate(columns[:2]))
        having = pick.choice(["", "", " having count(*) > 1"])
        return f"select {listed}, {self._aggregates(seen)} from {source}{where} group by {grouped}{having}"

    def _aggregates(self, seen: list[tuple[str, str]]) -> str:
        numbers = [column for column, kind in seen if kind in _NUMBERS]
        found = ["count(*) as n"]
        if numbers:
            column = self._random.choice(numbers)
            found.append(
                self._random.choice(
                    [
                        f"sum({column}) as s",
                        f"max({column}) as s",
                        f"count(distinct {column}) as s",
                        f"avg({column}) as s",
                    ]
                )
            )
        return ", ".join(found)

    def _from(self) -> tuple[list[tuple[str, str]], str]:
        """Columns that can be read, each with its type, and the text of FROM."""
        seen, text = self._source()
        for _ in range(self._random.choice([0, 1, 1, 2, 2])):
            more, joined = self._source()
            kind = self._random.choice(
                [
                    "join",
                    "join",
                    "left join",
                    "left join",
                    "right join",
                    "full join",
                    "left semi join",
                    "left anti join",
                ]
            )
            text += f" {kind} {joined} on {self._on(seen, more)}"
            if "semi" not in kind and "anti" not in kind:
                seen = seen + more
        return seen, text

    def _source(self) -> tuple[list[tuple[str, str]], str]:
        alias = f"t{self._aliases}"
        self._aliases += 1
        table = self._random.choice(_TABLES)
        columns = COLUMNS[table]
        shape = self._random.random()
        if shape < 0.12:
            by = self._random.choice(list(columns))
            text = f"(select {by}, count(*) as n from {table} group by {by}) {alias}"
            return [(f"{alias}.{by}", columns[by]), (f"{alias}.n", "bigint")], text
        if shape < 0.2:
            number = next(column for column, kind in columns.items() if kind in _NUMBERS)
            text = f"(select * from {table} where {number} > 1) {alias}"
        else:
            text = f"{table} {alias}"
        return [(f"{alias}.{column}", kind) for column, kind in columns.items()], text

    def _on(self, left: list[tuple[str, str]], right: list[tuple[str, str]]) -> str:
        ones = [column for column, kind in left if kind in _NUMBERS]
        others = [column for column, kind in right if kind in _NUMBERS]
        if not ones or not others:
            return "true"
        pick = self._random
        same = pick.choice(["=", "=", "=", "=", "<=>", "<"])
        text = f"{pick.choice(ones)} {same} {pick.choice(others)}"
        if pick.random() < 0.3:
            text += f" and {pick.choice(others + ones)} > {pick.randrange(3)}"
        return text

    def _where(self, seen: list[tuple[str, str]]) -> str:
        pick = self._random
        numbers = [column for column, kind in seen if kind in _NUMBERS]
        if not numbers or pick.random() < 0.4:
            return ""
        column, alias = pick.choice(numbers), f"t{self._aliases}"
        self._aliases += 1
        table = pick.choice([name for name in _TABLES if name != "clicks"])
        others = [name for name, kind in COLUMNS[table].items() if kind in _NUMBERS]
        one, two = pick.choice(others), pick.choice(others)
        tests = [
            f"{column} > {pick.randrange(4)}",
            f"{column} is null or {pick.choice(numbers)} = 2",
            f"exists (select 1 from {table} {alias} where {alias}.{one} = {column} and {alias}.{two} > 1)",
            f"not exists (select 1 from {table} {alias} where {alias}.{one} = {column})",
            f"{column} in (select {alias}.{one} from {table} {alias} where {alias}.{two} > 0)",
            f"{column} not in (select {alias}.{one} from {table} {alias} where {alias}.{one} is not null)",
            f"(select max({alias}.{two}) from {table} {alias} where {alias}.{one} = {column}) > 1",
        ]
        return f" where {pick.choice(tests)}"

    def _one_column(self) -> str:
        seen, source = self._from()
        numbers = [column for column, kind in seen if kind in _NUMBERS]
        return f"select {self._random.choice(numbers)} as c0 from {source}{self._where(seen)}"
