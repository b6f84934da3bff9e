"""What a table must hold, kept beside it in `expected.json` so that any later process can check it."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Expected:
    """The rows of one table and how they can be looked up."""

    key: list
    """Key columns, in key order."""
    rows: dict = field(default_factory=dict)
    """Key to row, all values plain."""
    gone: list = field(default_factory=list)
    """Keys that were written once and deleted."""
    btree: list = field(default_factory=list)
    bitmap: list = field(default_factory=list)
    text: str = None
    """Column with a full text index."""
    vector: str = None
    """Column with a vector index."""
    exact: bool = True
    """Whether that index ranks by true distances, when all its partitions are probed."""
    blobs: list = field(default_factory=list)
    """Columns the client can't read through the LSM path."""
    seen: dict = field(default_factory=dict)
    """Indexed column to every value it ever had: old ones must find nothing."""

    def key_of(self, row):
        return tuple(row[column] for column in self.key)


def plain(value):
    """`value` as JSON can hold it: bytes become hexadecimal text, which also makes keys hashable."""
    if isinstance(value, (bytes, bytearray)):
        return "0x" + value.hex()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def save(root, name, expected):
    """Adds or replaces table `name` in the `expected.json` of `root`."""
    file = Path(root) / "expected.json"
    tables = json.loads(file.read_text()) if file.exists() else {}
    tables[name] = vars(expected) | {"rows": list(expected.rows.values())}
    file.write_text(json.dumps(tables, ensure_ascii=False))


def load(root):
    """The expectations of every table under `root`, by name."""
    loaded = {}
    for name, entry in json.loads((Path(root) / "expected.json").read_text()).items():
        rows = entry.pop("rows")
        expected = Expected(**entry)
        expected.rows = {expected.key_of(row): row for row in rows}
        expected.gone = [tuple(key) for key in expected.gone]
        loaded[name] = expected
    return loaded
