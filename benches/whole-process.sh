#!/usr/bin/env bash
# Time and peak memory of the whole program beside other tools, on generated captures of 16 ports, each packet once.
#
#   benches/whole-process.sh [SIZE]     SIZE of each capture: bytes, or with K, M or G (default 1G)
#
# Each capture is read once beforehand, so that it comes from the system's cache as far as memory allows. Tools take
# turns, three rounds of them, and the fastest run of each counts. A round before them measures memory.

set -euo pipefail
export LC_ALL=C

size=${1:-1G}
if [[ ! $size =~ ^[1-9][0-9]*[KMG]?$ ]]; then
    echo "usage: $0 [SIZE]    SIZE in bytes, or with K, M or G: 1G" >&2
    exit 2
fi
rounds=3
# tshark is slow, so it gets a shorter capture of the same kind.
tshark_packets=200000

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked --quiet
cargo build --release --locked --quiet -p ibscope-samples
programs=${CARGO_TARGET_DIR:-target}/release
ibscope=$programs/ibscope
generate=$programs/ibscope-generate

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

has() { command -v "$1" >/dev/null 2>&1; }

# How to learn the peak memory of a child: a command that runs the rest of its line and writes KiB to $work/peak.
# A program cannot show less than the wrapper itself had: 2 MiB with time, 10 MiB with python3.
cat >"$work/peak.py" <<'PYTHON'
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as peak:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=peak)
sys.exit(code)
PYTHON
if [[ -x /usr/bin/time ]] && /usr/bin/time -f %M -o "$work/peak" true 2>/dev/null; then
    peak_of=(/usr/bin/time -f %M -o "$work/peak")
elif has python3 && python3 "$work/peak.py" "$work/peak" true 2>/dev/null; then
    peak_of=(python3 "$work/peak.py" "$work/peak")
else
    peak_of=()
fi
# In front of every run below: peak_of in the round for memory, nothing in those for time.
wrapper=()

# The tools by name. $1 is the capture.
run_cat() { "${wrapper[@]}" cat "$1"; }
run_matrix_1() { "${wrapper[@]}" "$ibscope" matrix --by endpoint --no-mpi --format csv --threads 1 "$1"; }
run_matrix() { "${wrapper[@]}" "$ibscope" matrix --by endpoint --no-mpi --format csv "$1"; }
run_analyze() { "${wrapper[@]}" "$ibscope" analyze "$1"; }
run_capinfos() { "${wrapper[@]}" capinfos -c "$1"; }
run_tcpdump() { "${wrapper[@]}" tcpdump -r "$1" -w /dev/null; }
run_tshark() {
    "${wrapper[@]}" tshark -n -r "$1" -T fields \
        -e infiniband.lrh.slid -e infiniband.lrh.dlid -e infiniband.bth.opcode
}
declare -A label=(
    [cat]="cat"
    [matrix_1]="ibscope matrix --no-mpi, 1 thread"
    [matrix]="ibscope matrix --no-mpi"
    [analyze]="ibscope analyze"
    [capinfos]="capinfos -c"
    [tcpdump]="tcpdump -w /dev/null"
    [tshark]="tshark -T fields (cut)"
)
tools=(cat matrix_1 matrix analyze)
for tool in capinfos tcpdump tshark; do
    if has "$tool"; then tools+=("$tool"); fi
done

# Packets that stand in a capture, which ibscope-generate knows.
make_capture() { # KIND BYTES FILE
    "$generate" --framing native --kind "$1" --bytes "$2" --lids 16 --mirror 1 --output "$3" --totals "$work/totals"
    awk -F, 'NR > 1 { packets += $6 } END { print packets }' "$work/totals"
}

measure() { # KIND
    local kind=$1 file=$work/$1.pcap cut=$work/$1-cut.pcap packets cut_packets bytes cut_bytes tool round
    local -A seconds=() peak=()
    packets=$(make_capture "$kind" "$size" "$file")
    bytes=$(stat -c %s "$file")
    # Room below the limit: the last messages are completed, which adds up to 450 KB, and packets vary in size.
    cut_bytes=$(awk -v b="$bytes" -v p="$packets" -v n="$tshark_packets" \
        'BEGIN { c = 0.99 * n * b / p - 450000; printf "%d", (c < b ? c : b) }')
    cut_packets=$(make_capture "$kind" "$cut_bytes" "$cut")
    cut_bytes=$(stat -c %s "$cut")
    # Written pages are still on their way to the disk, which would slow the first runs.
    sync
    cat "$file" "$cut" >/dev/null

    for ((round = 0; round <= rounds; round++)); do
        wrapper=()
        if ((round == 0)); then wrapper=("${peak_of[@]}"); fi
        for tool in "${tools[@]}"; do
            local input=$file start end elapsed
            if [[ $tool == tshark ]]; then input=$cut; fi
            echo 0 >"$work/peak"
            start=$EPOCHREALTIME
            if ! "run_$tool" "$input" >/dev/null 2>"$work/errors"; then
                echo "$tool failed on $input:" >&2
                cat "$work/errors" >&2
                exit 1
            fi
            end=$EPOCHREALTIME
            if ((round == 0)); then
                peak[$tool]=$(<"$work/peak")
                continue
            fi
            elapsed=$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.6f", b - a }')
            if [[ -z ${seconds[$tool]:-} ]] || awk -v a="$elapsed" -v b="${seconds[$tool]}" 'BEGIN { exit !(a < b) }'; then
                seconds[$tool]=$elapsed
            fi
        done
    done

    printf '\n%s.pcap: %s bytes, %s packets' "$kind" "$bytes" "$packets"
    if [[ -n ${seconds[tshark]:-} ]]; then
        printf '; tshark reads a cut: %s bytes, %s packets' "$cut_bytes" "$cut_packets"
    fi
    printf '\n%-36s %9s %11s %8s %10s\n' tool seconds Mpackets/s GB/s 'peak MiB'
    for tool in "${tools[@]}"; do
        local p=$packets b=$bytes
        if [[ $tool == tshark ]]; then p=$cut_packets b=$cut_bytes; fi
        awk -v name="${label[$tool]}" -v s="${seconds[$tool]}" -v p="$p" -v b="$b" -v kib="${peak[$tool]}" 'BEGIN {
            printf "%-36s %9.3f %11.3f %8.3f %10s\n", name, s, p / s / 1e6, b / s / 1e9,
                (kib > 0 ? sprintf("%.1f", kib / 1024) : "?") }'
    done
    for tool in tshark capinfos; do
        [[ -n ${seconds[$tool]:-} ]] || continue
        local p=$packets own
        if [[ $tool == tshark ]]; then p=$cut_packets; fi
        for own in matrix_1 matrix analyze; do
            awk -v own="${label[$own]}" -v other="${label[$tool]}" -v a="${seconds[$own]}" -v p="$packets" \
                -v b="${seconds[$tool]}" -v q="$p" \
                'BEGIN { printf "%s: %.2f times the packets per second of %s\n", own, (p / a) / (q / b), other }'
        done
    done
    rm "$file" "$cut"
}

echo "machine   $(nproc) cores, $(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)," \
    "$(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
echo "load      $(cut -d' ' -f1-3 /proc/loadavg) (1, 5, 15 minutes before)"
echo "versions  $("$ibscope" --version), $(rustc --version)"
for tool in capinfos tcpdump tshark; do
    if has "$tool"; then
        version=$("$tool" --version 2>&1 | grep -im1 "^$tool\|^running.*$tool" || true)
        echo "          ${version:-$tool, version unknown}"
    else
        echo "          $tool is not installed: left out"
    fi
done
echo "runs      minimum of $rounds, in turns; peak memory of a run before them"
measure small
measure big
