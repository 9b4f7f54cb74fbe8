#!/usr/bin/env python3
"""Compare whole programs on generated captures, and write BENCHMARKS.md.

    benches/benchmarks.py [--size SIZE] [--largest SIZE] [--output FILE]

Each capture is read once beforehand, so that it is in the page cache. Tools take turns, in three rounds. The fastest
run of each tool counts, with the CPU time and the peak memory of that process (wait4). The script needs only python3;
it uses capinfos, tcpdump, tshark, scapy and valgrind if they are installed.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
# Sizes of the shorter captures for slow tools.
CUT_BYTES = {"tshark -T fields": 16 << 20, "scapy": 1 << 20}
CONDITIONS = [
    "`make bench` writes this page. Conditions of the measurement:",
    "",
    "- The captures are generated, and are in the page cache of the system.",
    f"- `tshark` and scapy are slow, so they read shorter captures ({CUT_BYTES['tshark -T fields'] >> 20} MiB and {CUT_BYTES['scapy'] >> 20} MiB) of the same kind.",
    "- The tools run in turns, three times each. The fastest run counts.",
    "- Peak memory is never below 14 MiB, the memory of the process that starts the tools.",
    "",
    "Machine and versions:",
]
SCAPY = """
import sys
from scapy.utils import RawPcapReader
pairs = {}
for data, _ in RawPcapReader(sys.argv[1]):
    pairs[data[18:24]] = pairs.get(data[18:24], 0) + 1
"""


def size(text):
    found = re.fullmatch(r"([1-9][0-9]*)([KMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError("expected a number of bytes, with or without K, M or G")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def human(count):
    return f"{count / 2**30:g} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def run(command):
    """Wall seconds, CPU seconds and peak KiB of a process, which must succeed."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        elapsed = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, command))} failed:\n{errors.read().decode(errors='replace')}")
    return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def best(commands):
    """The fastest run of each command, by name. The commands run in turns."""
    found = {}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            seconds = run(command)
            if name not in found or seconds < found[name]:
                found[name] = seconds
    return found


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


class Bench:
    def __init__(self, work):
        self.work = Path(work)
        build = ["cargo", "build", "--release", "--locked", "--quiet"]
        subprocess.run(build + ["--workspace", "--bins"], cwd=ROOT, check=True)
        programs = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
        self.ibscope, self.generate = programs / "ibscope", programs / "ibscope-generate"

    def capture(self, name, count, *options):
        """Generates a capture. Returns its path, packets and bytes."""
        place, totals = self.work / f"{name}.pcap", self.work / "totals.csv"
        command = [self.generate, "--bytes", str(count), "--output", place, "--totals", totals, *options]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        head, *rows = [line.split(",") for line in totals.read_text().splitlines()]
        packets = sum(int(row[head.index("packets")]) for row in rows)
        if "--mirror" in options and options[options.index("--mirror") + 1] == "2":
            packets *= 2
        # Writing the file to the disk would slow the first runs.
        os.sync()
        run(["cat", place])
        return place, packets, place.stat().st_size

    def matrix(self, *options):
        return [self.ibscope, "matrix", "--by", "endpoint", "--no-mpi", "--format", "csv", *options]

    def tools(self, capture, cuts):
        threads = os.cpu_count() or 1
        tools = {
            "`cat > /dev/null` (reads only)": ["cat", capture],
            "`ibscope matrix --by endpoint --no-mpi`": [*self.matrix(), capture],
            "the same, `--threads 1`": [*self.matrix("--threads", "1"), capture],
            "`ibscope analyze --no-times`": [self.ibscope, "analyze", "--no-times", capture],
            "`ibscope analyze`": [self.ibscope, "analyze", capture],
        }
        if threads == 1:
            del tools["the same, `--threads 1`"]
        if shutil.which("capinfos"):
            tools["`capinfos -c`"] = ["capinfos", "-c", capture]
        if shutil.which("tcpdump"):
            tools["`tcpdump -w /dev/null`"] = ["tcpdump", "-r", capture, "-w", "/dev/null"]
        if shutil.which("tshark"):
            fields = [f"-einfiniband.{field}" for field in ("lrh.slid", "lrh.dlid", "bth.opcode")]
            tools["`tshark -T fields`"] = ["tshark", "-n", "-r", cuts["tshark -T fields"][0], "-T", "fields", *fields]
        if subprocess.run([sys.executable, "-c", "import scapy"], stderr=subprocess.DEVNULL).returncode == 0:
            tools["scapy (records only, pairs counted)"] = [sys.executable, "-c", SCAPY, cuts["scapy"][0]]
        return tools

    def side_by_side(self, kind, count):
        options = ["--kind", kind, "--lids", "16"]
        capture = self.capture(kind, count, *options)
        cuts = {name: self.capture(f"{kind}-{name.split()[0]}", cut, *options) for name, cut in CUT_BYTES.items()}
        rates, rows = {}, []
        for name, (seconds, cpu, peak) in best(self.tools(capture[0], cuts)).items():
            cut = next((cut for tool, cut in cuts.items() if tool.split()[0] in name), capture)
            rates[name] = cut[1] / seconds
            million, giga = cut[1] / seconds / 1e6, cut[2] / seconds / 1e9
            rows.append([name, f"{seconds:.3f}", f"{million:.3f}" if million < 1 else f"{million:.1f}", f"{giga:.3f}", f"{cpu:.2f}", f"{peak >> 10}"])
        yield f"## {kind.capitalize()} packets: {human(count)}, {capture[1]} packets"
        yield ""
        yield from table(["tool", "seconds", "million packets/s", "GB/s", "CPU seconds", "peak MiB"], rows)
        own = [name for name in rates if "ibscope" in name]
        for other in ("`capinfos -c`", "`tshark -T fields`", "`cat > /dev/null` (reads only)"):
            if other in rates:
                yield f"Packets per second relative to {other}: " + ", ".join(f"{name} {rates[name] / rates[other]:.2f}" for name in own) + "."
        yield ""
        for place in (capture[0], *(cut[0] for cut in cuts.values())):
            place.unlink()

    def growth(self, title, what, captures):
        """A table of time and memory. `captures` lists label, size and options of each capture."""
        rows = []
        for label, count, options in captures:
            place, packets, length = self.capture("growth", count, *options)
            found = best({"matrix": [*self.matrix(), place], "analyze": [self.ibscope, "analyze", place]})
            row = [label]
            for seconds, _, peak in found.values():
                row += [f"{seconds:.2f}", f"{packets / seconds / 1e6:.1f}", f"{peak >> 10}"]
            rows.append(row)
            place.unlink()
        yield f"## {title}"
        yield ""
        head = [f"{command}: {value}" for command in ("matrix", "analyze") for value in ("seconds", "million packets/s", "peak MiB")]
        yield from table([what, *head], rows)

    def threads(self, count):
        place, packets, _ = self.capture("threads", count, "--kind", "small", "--lids", "16")
        rows, first = [], {}
        for threads in range(1, (os.cpu_count() or 1) + 1):
            chosen = ["--threads", str(threads)]
            found = best({"matrix": [*self.matrix(*chosen), place], "analyze": [self.ibscope, "analyze", *chosen, place]})
            row = [str(threads)]
            for name, (seconds, _, _) in found.items():
                first.setdefault(name, seconds)
                row += [f"{packets / seconds / 1e6:.1f}", f"{first[name] / seconds:.2f}"]
            rows.append(row)
        place.unlink()
        yield f"## Threads: {human(count)} of small packets"
        yield ""
        yield "The worker threads also read and split the file, so 1 means a single thread in all."
        yield ""
        yield from table(["threads", "matrix: million packets/s", "matrix: gain", "analyze: million packets/s", "analyze: gain"], rows)

    def instructions(self):
        """Instructions per packet, from the difference of two captures to exclude startup."""
        counts = []
        for count in (4 << 20, 12 << 20):
            place, packets, _ = self.capture("instructions", count, "--kind", "small", "--lids", "16")
            found = [packets]
            for command in ([*self.matrix("--threads", "1"), place], [self.ibscope, "analyze", "--threads", "1", place]):
                valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.work / 'callgrind'}", *map(str, command)]
                printed = subprocess.run(valgrind, check=True, capture_output=True, text=True).stderr
                found.append(int(re.search(r"Collected : (\d+)|refs:\s+([\d,]+)", printed).group(0).split()[-1].replace(",", "")))
            counts.append(found)
            place.unlink()
        (few, *before), (many, *after) = counts
        each = [f"{(b - a) / (many - few):.0f}" for a, b in zip(before, after)]
        yield "## Instructions for each small packet (callgrind)"
        yield ""
        yield from table(["matrix --by endpoint --no-mpi", "analyze"], [each])


def machine():
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield f"- machine: {os.cpu_count()} cores, {model[1] if model else platform.processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()}"
    yield f"- load before: {' '.join(f'{load:.1f}' for load in os.getloadavg())} (1, 5, 15 minutes)"
    versions = [subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip()]
    for tool in ("capinfos", "tcpdump", "tshark"):
        if shutil.which(tool):
            found = subprocess.run([tool, "--version"], capture_output=True, text=True)
            versions.append(next((line for line in (found.stdout + found.stderr).splitlines() if tool in line.lower()), tool))
    yield f"- versions: {'; '.join(versions)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=size, default=1 << 30, help="size of the captures for the comparison of tools [1G]")
    parser.add_argument("--largest", type=size, default=8 << 30, help="largest capture in the table of sizes [8G]")
    parser.add_argument("--output", type=Path, default=ROOT / "BENCHMARKS.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(work)
        lines = ["# Benchmarks", "", *CONDITIONS, "", *machine(), ""]
        small = ["--kind", "small", "--lids"]
        sizes = [count << 28 for count in (1, 4, 16, 32) if count << 28 <= given.largest]
        parts = [
            lambda: bench.side_by_side("small", given.size),
            lambda: bench.side_by_side("big", given.size),
            lambda: bench.threads(given.size),
            lambda: bench.growth("Size: small packets, 16 LIDs", "size", [(human(count), count, [*small, "16"]) for count in sizes]),
            lambda: bench.growth(
                f"LIDs: {human(given.size)} of small packets", "LIDs", [(str(lids), given.size, [*small, str(lids)]) for lids in (4, 16, 64, 256, 1024, 4096)]
            ),
        ]
        if shutil.which("valgrind"):
            parts.append(bench.instructions)
        for part in parts:
            for line in part():
                print(line, flush=True)
                lines.append(line)
    given.output.write_text("\n".join(lines).rstrip() + "\n")
    print(f"written to {given.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
