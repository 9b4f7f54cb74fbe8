#!/usr/bin/env python3
"""sample.py RESULT OUT [BYTES]: makes a sample of a result of record.sh.

The captures keep the first BYTES bytes of each packet (default 144) after the ERF header of 16 bytes,
and state the true lengths. Everything else is complete: truth.csv and collectives.csv are the sums of
the logs of truth.c, the trace is copied.
"""
import collections
import csv
import shutil
import struct
import subprocess
import sys
from pathlib import Path

ERF_BYTES = 16


def truncate(source, target, kept):
    """Truncates the records of a pcap file of ibdump."""
    data = source.read_bytes()
    if struct.unpack_from("<I", data)[0] != 0xA1B2C3D4 or struct.unpack_from("<I", data, 20)[0] != 197:
        sys.exit(f"{source}: not a capture of ibdump")
    out, at = bytearray(data[:24]), 24
    while at < len(data):
        seconds, micros, length, original = struct.unpack_from("<IIII", data, at)
        short = min(length, kept + ERF_BYTES)
        out += struct.pack("<IIII", seconds, micros, short, original) + data[at + 16 : at + 16 + short]
        at += 16 + length
    if at != len(data):
        sys.exit(f"{source}: truncated")
    plain = target.with_suffix("")
    plain.write_bytes(out)
    subprocess.run(["zstd", "-q", "-f", "-19", "--long=27", "--rm", str(plain)], check=True)


def main(result, out, kept=144):
    result, out = Path(result), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    captures = sorted((result / "captures").glob("*.pcap"))
    if len(captures) != 3:
        sys.exit(f"{len(captures)} captures")
    for number, capture in enumerate(captures, 1):
        truncate(capture, out / f"sink{number}.pcap.zst", int(kept))
    (out / "SNAPLEN").write_text(f"packets truncated to {kept} bytes (and 16 bytes of ERF header)\n")

    messages, sizes = collections.Counter(), collections.Counter()
    for path in (result / "truth").glob("sends.*.csv"):
        for row in csv.DictReader(path.open()):
            pair = int(row["src"]), int(row["dst"])
            messages[pair] += 1
            sizes[pair] += int(row["bytes"])
    rows = [f"{src},{dst},{messages[src, dst]},{sizes[src, dst]}" for src, dst in sorted(messages)]
    (out / "truth.csv").write_text("\n".join(["src,dst,messages,bytes", *rows]) + "\n")

    rows = []
    for path in (result / "truth").glob("colls.*.csv"):
        rows += [(int(row["rank"]), row["call"], row["calls"], row["bytes"]) for row in csv.DictReader(path.open())]
    rows = [",".join(map(str, row)) for row in sorted(rows)]
    (out / "collectives.csv").write_text("\n".join(["rank,call,calls,bytes", *rows]) + "\n")

    lids = [line.split() for line in (result / "lids").read_text().splitlines()]
    rows = [f"{lid},n00{address.rsplit('.', 1)[1]}" for address, lid in lids]
    (out / "hosts.csv").write_text("\n".join(["endpoint,name", *rows]) + "\n")

    shutil.rmtree(out / "trace", ignore_errors=True)
    shutil.copytree(result / "trace", out / "trace", ignore=shutil.ignore_patterns("MANIFEST.md", "scorep.cfg"))
    shutil.copy(result / "output.txt", out / "output.txt")


main(*sys.argv[1:])
