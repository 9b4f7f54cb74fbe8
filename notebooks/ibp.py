"""Reads ibscope profiles (folders NAME.ibp) as polars frames with the known ranks of both ends."""

import json
import os
import subprocess
from pathlib import Path

import matplotlib
import polars as pl
from matplotlib import ticker

# Blue and orange by Okabe and Ito; maps use viridis. Both are readable with every kind of color
# vision, and in gray.
BLUE, ORANGE, LIGHT = "#0072B2", "#E69F00", "#B2D5E8"


def place():
    """Path of the profile to show: `IBSCOPE_PROFILE`, or the profile of `make demo`."""
    return Path(os.environ.get("IBSCOPE_PROFILE", "../demo/openib-mixed-4x1.ibp"))


def ibscope(*arguments):
    """Output of the program. `IBSCOPE` is its path; the default is `ibscope` in PATH."""
    program = os.environ.get("IBSCOPE", "ibscope")
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def style():
    """Sets a style that is readable in print."""
    matplotlib.rcParams.update(
        {
            "figure.dpi": 110,
            "figure.figsize": (7, 4),
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.axisbelow": True,
        }
    )


def unit(ns):
    """The unit for times of this size: its length in nanoseconds, and its name."""
    return next(((one, name) for one, name in [(1e9, "s"), (1e6, "ms"), (1e3, "µs")] if ns >= one), (1, "ns"))


def round_ticks(axis):
    """Ticks of a logarithmic axis at 1, 2 and 5, written as numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


class Profile:
    """The tables of a profile.

    Times are nanoseconds since the epoch; `origin_ns` is the time of the first packet.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.document = json.loads((self.folder / "profile.json").read_text())
        self.origin_ns = self.document["coverage"]["first_time_ns"]
        self.connections = self._connections()

    def table(self, name):
        """A table of the profile, unchanged."""
        return pl.read_parquet(self.folder / f"{name}.parquet")

    def _connections(self):
        """Connections that carry data, with their number and the ranks at both ends."""
        ranks = {(row["endpoint"], row.get("qpn")): row["rank"] for row in self.document["ranks"]}

        def rank(endpoint, queue_pair):
            return ranks.get((endpoint, queue_pair), ranks.get((endpoint, None)))

        table = self.table("connections").with_row_index("connection").filter(pl.col("kind") == "data")
        ends = [("src", "src_qp", "src_rank"), ("dst", "dest_qp", "dst_rank")]
        return table.with_columns(
            pl.Series(name, [rank(*end) for end in table.select(endpoint, queue_pair).iter_rows()], dtype=pl.UInt32)
            for endpoint, queue_pair, name in ends
        ).with_columns(pl.col("connection").cast(pl.UInt32))

    def latencies(self):
        """Histogram of all connections together: interval, verb, from_bytes, ns, count."""
        own = self.connections.select("connection")
        kinds = self.table("latencies").with_row_index("latency").join(own, on="connection", how="semi")
        buckets = self.table("latency_buckets").join(
            kinds.select(pl.col("latency").cast(pl.UInt32), "interval", "verb", "from_bytes", "kept_bits"), on="latency"
        )
        ns = [middle(*bucket) for bucket in buckets.select("bucket", "kept_bits").iter_rows()]
        return (
            buckets.with_columns(pl.Series("ns", ns, dtype=pl.UInt64))
            .group_by("interval", "verb", "from_bytes", "ns")
            .agg(pl.col("count").cast(pl.UInt64).sum())
            .sort("interval", "verb", "from_bytes", "ns")
        )


def middle(bucket, kept_bits):
    """The middle of a bucket in nanoseconds. The histogram keeps the first bits of each time."""
    if bucket >> kept_bits == 0:
        return bucket
    shift = (bucket >> (kept_bits - 1)) - 1
    return ((bucket - (shift << (kept_bits - 1))) << shift) + ((1 << shift) - 1) // 2


def quantile(buckets, share):
    """The time in nanoseconds that this share of the samples does not exceed."""
    buckets = buckets.group_by("ns").agg(pl.col("count").sum()).sort("ns")
    total = int(buckets["count"].sum())
    wanted = min(max(-int(-share * total // 1), 1), max(total, 1))
    return int(buckets.filter(pl.col("count").cum_sum() >= wanted)["ns"][0])
