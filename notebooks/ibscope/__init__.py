"""Reads profiles of ibscope (folders NAME.ibp) as polars or pandas frames.

Names of columns end with their unit (`_ns`, `_bytes`); `columns` lists the types, units and meanings.
A value that is not known is null.
"""

import json
from collections import namedtuple
from pathlib import Path

import narwhals as nw

__version__ = "0.1.0"

#: Version of the profile's format that this package reads, as in the member `version` of `profile.json`.
FORMAT_VERSION = 4

Column = namedtuple("Column", ["type", "unit", "meaning"])
Column.__doc__ = "Type, unit and meaning of a column, as in docs/columns.md."


def columns(table):
    """The columns of a table of the profile, by name: `Column(type, unit, meaning)`."""
    tables = json.loads((Path(__file__).parent / "columns.json").read_text())
    return {name: Column(*column) for name, column in tables[table].items()}


def read(folder, frames="polars"):
    """Reads a profile. `frames` is `polars` or `pandas`.

    Raises ValueError if the folder is no profile of a known version.
    """
    return Profile(folder, frames)


class Profile:
    """A profile: its document (`profile.json`) and its tables."""

    def __init__(self, folder, frames="polars"):
        if frames not in ("polars", "pandas"):
            raise ValueError(f"frames={frames!r}: must be 'polars' or 'pandas'")
        self.folder = Path(folder)
        self._frames = frames
        place = self.folder / "profile.json"
        if not place.is_file():
            raise ValueError(f"{place}: no such file; `ibscope analyze CAPTURE -o NAME.ibp` writes a profile")
        self.document = json.loads(place.read_text())
        version = self.document.get("version")
        if version != FORMAT_VERSION:
            known = f"this package reads version {FORMAT_VERSION}"
            raise ValueError(f"{place}: format version {version}; {known}; install the package of the program's release")
        shares = [source["share"] for source in self.document["inputs"] if source.get("share")]
        if shares:
            share = f"{shares[0]['number']}/{shares[0]['of']}"
            raise ValueError(f"{place}: it has share {share} of the connections; merge all shares with `ibscope merge`")

    @property
    def origin_ns(self):
        """Time of the first packet in nanoseconds since the epoch."""
        return self.document["coverage"]["first_time_ns"]

    def tables(self):
        """Names of the tables in the profile."""
        return sorted(file.stem for file in self.folder.glob("*.parquet"))

    def table(self, name):
        """A table of the profile, unchanged."""
        return self._read(name).to_native()

    def connections(self):
        """The connections that carry data, with their number (`connection`) and the ranks of both ends.

        `src_rank` and `dst_rank` are null where the rank is not known.
        """
        return self._connections().to_native()

    def matrix(self):
        """Sums per job and pair of ranks, over the connections with a known rank at both ends.

        `p2p_messages`, `p2p_mpi_bytes`, `collective_messages`, `collective_mpi_bytes`, and `packets`,
        `wire_bytes`, `payload_bytes` of all traffic of the pair.
        """
        pair = ["job", "src_rank", "dst_rank"]
        sums = ["p2p_messages", "p2p_mpi_bytes", "collective_messages", "collective_mpi_bytes"]
        sums += ["packets", "wire_bytes", "payload_bytes"]
        known = self._connections().filter(~nw.any_horizontal(*[nw.col(name).is_null() for name in pair], ignore_nulls=False))
        return known.group_by(pair).agg(nw.col(*sums).sum()).sort(pair).to_native()

    def latencies(self):
        """The histograms of all connections together, one row per bucket.

        `interval`, `verb`, `from_bytes` (lower end of the size class), `ns` (middle of the bucket), `count`.
        `quantile` computes quantiles of such rows.
        """
        own = self._connections().select("connection")
        kinds = self._read("latencies").with_row_index("latency").join(own, on="connection", how="inner")
        kinds = kinds.select(nw.col("latency").cast(nw.UInt32), "interval", "verb", "from_bytes", "kept_bits")
        buckets = self._read("latency_buckets").join(kinds, on="latency", how="inner")
        middles = [middle_ns(*bucket) for bucket in buckets.select("bucket", "kept_bits").iter_rows()]
        key = ["interval", "verb", "from_bytes", "ns"]
        rows = buckets.with_columns(nw.new_series("ns", middles, nw.UInt64, backend=buckets.implementation))
        return rows.group_by(key).agg(nw.col("count").cast(nw.UInt64).sum()).sort(key).to_native()

    def _read(self, name):
        place = self.folder / f"{name}.parquet"
        if not place.is_file():
            raise ValueError(f"{place}: no such table; the profile has {', '.join(self.tables())}")
        # By default, pandas turns integers with nulls into floating-point numbers.
        types = {"dtype_backend": "numpy_nullable"} if self._frames == "pandas" else {}
        return nw.read_parquet(str(place), backend=self._frames, **types)

    def _connections(self):
        ranks = {(row["endpoint"], row.get("qpn")): row["rank"] for row in self.document["ranks"]}
        table = self._read("connections").with_row_index("connection").filter(nw.col("kind") == "data")
        ends = {"src_rank": ("src", "src_qp"), "dst_rank": ("dst", "dest_qp")}
        # An endpoint with one rank is in the list without a queue pair.
        numbers = {
            name: [ranks.get((endpoint, _number(qp)), ranks.get((endpoint, None))) for endpoint, qp in table.select(*end).iter_rows()]
            for name, end in ends.items()
        }
        added = [nw.new_series(name, values, nw.UInt32, backend=table.implementation) for name, values in numbers.items()]
        return table.with_columns(nw.col("connection").cast(nw.UInt32), *added)


def _number(value):
    """An integer of a row, or None. Rows of pandas have its own null."""
    return int(value) if isinstance(value, int) or hasattr(value, "__index__") else None


def middle_ns(bucket, kept_bits):
    """The middle of a bucket in nanoseconds. The histogram keeps the first `kept_bits` bits of each time."""
    if bucket >> kept_bits == 0:
        return bucket
    shift = (bucket >> (kept_bits - 1)) - 1
    return ((bucket - (shift << (kept_bits - 1))) << shift) + ((1 << shift) - 1) // 2


def quantile_ns(buckets, share):
    """The time in nanoseconds that this share of the samples does not exceed. `buckets` are rows of `latencies`."""
    rows = nw.from_native(buckets).group_by("ns").agg(nw.col("count").sum()).sort("ns")
    times, counts = rows["ns"].to_list(), rows["count"].to_list()
    wanted = min(max(-int(-share * sum(counts) // 1), 1), max(sum(counts), 1))
    below = 0
    for time_ns, count in zip(times, counts):
        below += count
        if below >= wanted:
            return int(time_ns)
    raise ValueError("no samples")
