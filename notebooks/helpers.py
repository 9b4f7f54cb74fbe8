"""The settings and helpers that the notebooks share."""

import os
import subprocess
from pathlib import Path

import matplotlib
from matplotlib import ticker

# Blue and orange by Okabe and Ito; maps use viridis. Both are readable with every kind of color
# vision, and in gray.
BLUE, ORANGE, LIGHT = "#0072B2", "#E69F00", "#B2D5E8"


def place():
    """Path of the profile to show: `IBSCOPE_PROFILE`, or the profile of `make demo`."""
    return Path(os.environ.get("IBSCOPE_PROFILE", "../demo/openib-mixed-4x1.ibp"))


def run(*arguments):
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
