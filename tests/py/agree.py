"""Whether every index of a table answers as a full scan does, and its folder holds nothing else."""

import client  # first: it quiets the libraries

import os
from pathlib import Path

import lance
import numpy as np

from check import literal, thinned

# Values of a column that are looked up one by one, and vectors that are searched for.
SINGLES_MAX = 10
POINTS_MAX = 5
FOLDERS = ("data", "_deletions", "_indices")


def indexes(path, probes=None, version=None):
    """Asks each index for what is in its column, and for `probes`: column to values that were.

    Vectors are searched in all partitions, so that an index without quantization is exact.
    """
    dataset = lance.dataset(path, version=version)
    for index in dataset.describe_indices():
        if index.name.startswith("__lance_"):
            continue
        [column] = index.field_names
        values = dataset.to_table(columns=[column]).column(0).to_pylist()
        if index.index_type == "Inverted":
            _text(dataset, column, values)
        elif index.index_type.startswith("IVF"):
            _vectors(dataset, column, values, exact="PQ" not in index.index_type)
        else:
            _scalar(dataset, column, {*values, *(probes or {}).get(column, [])})


def _scalar(dataset, column, values):
    """Values one by one, as far as there are few, and all of them in two parts."""
    data_type = dataset.schema.field(column).type
    known = [literal(data_type, value) for value in sorted(values - {None}, key=str)]
    conditions = [f"`{column}` = {value}" for value in known[:: 1 + len(known) // SINGLES_MAX]]
    conditions += [
        f"`{column}` IN ({', '.join(part)})" for part in (known[::2], known[1::2]) if part
    ]
    for condition in conditions:
        scan = {"filter": condition, "columns": [], "with_row_id": True}
        by_index, by_scan = (
            sorted(dataset.to_table(**scan, use_scalar_index=used)["_rowid"].to_pylist())
            for used in (True, False)
        )
        rows = f"the index finds {len(by_index)} rows, a scan {len(by_scan)}"
        assert by_index == by_scan, f"{condition}: {rows}"


def _text(dataset, column, values):
    for word in thinned({word for text in values for word in (text or "").split()}):
        rows = dataset.to_table(full_text_query=word, columns=[column, "_score"])
        found, want = rows[column].to_pylist(), [t for t in values if word in (t or "").split()]
        said = f"`{word}` in `{column}`: {len(found)} rows of {len(want)}"
        assert sorted(found) == sorted(want), said


def _vectors(dataset, column, values, exact):
    vectors = [value for value in values if value is not None]
    for point in vectors[:: 1 + len(vectors) // POINTS_MAX]:
        nearest = {"column": column, "q": point, "k": 3, "nprobes": 256, "refine_factor": 20}
        found, true = (
            dataset.to_table(columns=[column, "_distance"], nearest=nearest | {"use_index": used})
            for used in (True, False)
        )
        found, true = (rows["_distance"].to_pylist() for rows in (found, true))
        right = np.allclose(found, true) if exact else found[0] == true[0] == 0
        assert right, f"`{column}` at {point}: {found}, {true}"


def unreferenced(path):
    """Files of the base that no version needs: what a lost commit left behind."""
    tracked = set(lance.dataset(path).tracked_files().read_all()["path"].to_pylist())
    # A large blob lies in a folder that is called like its data file.
    tracked |= {os.path.splitext(file)[0] for file in tracked if file.startswith("data/")}
    files = [file for folder in FOLDERS for file in Path(path, folder).rglob("*") if file.is_file()]
    names = [(str(file.relative_to(path)), str(file.parent.relative_to(path))) for file in files]
    return sorted(name for name, folder in names if name not in tracked and folder not in tracked)
