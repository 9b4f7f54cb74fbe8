//! Shell scripts that run on nodes. They are constants: variable parts are positional parameters,
//! and are quoted wherever they are used.
//!
//! Every script begins with `: ibscope`, which distinguishes its own processes in `/proc` from the
//! programs that it looks for. The scripts need a POSIX shell, coreutils, grep, sed, setsid
//! (util-linux) and the `/proc` of Linux. No script contains a line end, because not every login
//! shell accepts one inside quotes.

/// Prefix of the scripts that start a program and have its arguments.
pub(super) const LAUNCH_PREFIX: &str = ": ibscope-launch;";
/// Prefix of the script that looks for processes, which has their arguments too.
pub(super) const FIND_PREFIX: &str = ": ibscope-find;";
/// Prefix of all scripts.
pub(super) const SCRIPT_PREFIX: &str = ": ibscope";

/// The first line that [`RUN`] prints. What comes before it was printed by a startup file of the login
/// shell, such as `.bashrc`, and is no output of the command.
pub(super) const OUTPUT_MARK: &str = "ibscope-output-begins\n";
/// Prints [`OUTPUT_MARK`], and runs the command `$3...` with a fixed `PATH`. `timeout` ends the command
/// after `$1` seconds and kills it `$2` seconds later, so that nothing stays behind on the node.
pub(super) const RUN: &str = r#": ibscope-run; PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH; t=$1; k=$2; shift 2; echo ibscope-output-begins; exec timeout -k "$k" "$t" "$@""#;

/// `$1` [`SUPERVISE`], `$2` [`EXEC_PROGRAM`], `$3` log, then the program and its arguments: starts
/// the program detached from the connection, and prints the boot id and `/proc/PID/stat` of its
/// process. The log must not exist: whoever creates the log decides whether the program starts (see
/// [`CANCEL_LAUNCH`]).
pub(super) const LAUNCH: &str = concat!(
    r#": ibscope-launch; umask 077; set -C; s=$1; b=$2; l=$3; shift 3; true >"$l" || exit 90; "#,
    r#"setsid -f /bin/sh -c "$s" sh "$b" "$@" 3>&1 >>"$l" 2>&1 </dev/null | { read -r r && printf '%s\n' "$r"; }"#
);
/// Exit status of [`LAUNCH`] if it cannot create the log.
pub(super) const NO_LOG: i32 = 90;
/// Waits for the program and appends its exit status to the log. The supervisor ignores the signals
/// that are meant for the program. It is not a background job of a shell, because such a job
/// ignores SIGINT, and so would the program.
pub(super) const SUPERVISE: &str = concat!(
    r#": ibscope-launch; trap : INT TERM HUP; b=$1; shift; /bin/sh -c "$b" sh "$@"; s=$?; "#,
    r#"printf '\nibscope: exit status %s\n' "$s""#
);
/// `$1` [`WATCH`], `$2` file, `$3` and `$4` limits of bytes and seconds or 0, then the program and its
/// arguments: prints its process, then executes the program in it. If there is a limit, a detached
/// watcher enforces it.
pub(super) const EXEC_PROGRAM: &str = concat!(
    r#": ibscope-launch; w=$1; f=$2; z=$3; m=$4; shift 4; "#,
    r#"read -r b </proc/sys/kernel/random/boot_id; read -r l <"/proc/$$/stat"; "#,
    r#"printf '%s %s\n' "$b" "$l" >&3; [ "$z$m" = 00 ] || ( exec 3>&-; set -- ${l##*) }; "#,
    r#"exec setsid -f /bin/sh -c "$w" sh "$$" "${20}" "$f" "$z" "$m" ); exec "$@" 3>&-"#
);
/// Prefix of the exit status in a log.
pub(super) const EXIT_STATUS: &str = "ibscope: exit status ";

/// `$1` log: creates the log, so that a launch in progress cannot start. Prints `claimed`,
/// `started` if the log exists, or `nowhere` if its folder does not.
pub(super) const CANCEL_LAUNCH: &str = concat!(
    r#": ibscope-claim; umask 077; set -C; [ -d "${1%/*}" ] || { echo nowhere; exit 0; }; "#,
    r#"if true >"$1"; then echo claimed; elif [ -e "$1" ]; then echo started; else exit 1; fi"#
);

macro_rules! alive {
    () => {
        concat!(
            r#"alive() { { read -r t <"/proc/$p/stat"; } 2>/dev/null || return 1; set -- ${t##*) }; "#,
            r#"[ "${20}" = "$s" ] && [ "$1" != Z ] && [ "$1" != X ]; }; "#
        )
    };
}

/// Prefix of the line with the limit in a log.
pub(super) const STOPPED: &str = "ibscope: stopped at ";
/// `$1` pid, `$2` start time, `$3` file, `$4` and `$5` limits of bytes and seconds or 0: stops the
/// process when its file or its age reaches a limit, and prints which one. Ends with the process.
/// Time is that of the kernel, which no clock correction changes.
pub(super) const WATCH: &str = concat!(
    r#": ibscope-watch; p=$1; s=$2; f=$3; z=$4; m=$5; u() { read -r n n2 </proc/uptime; n=${n%.*}; }; u; e=$n; "#,
    alive!(),
    r#"while alive; do w=; u; [ "$m" -gt 0 ] && [ $((n-e)) -ge "$m" ] && w="max_s $m"; "#,
    r#"[ "$z" -gt 0 ] && [ "$(stat -c %s -- "$f" 2>/dev/null || echo 0)" -ge "$z" ] && w="max_bytes $z"; "#,
    r#"[ -n "$w" ] || { sleep 0.2; continue; }; printf '\nibscope: stopped at %s\n' "$w"; "#,
    r#"for g in INT TERM KILL; do kill -s "$g" "$p" || exit 0; i=0; "#,
    r#"while [ "$i" -lt 100 ]; do alive || exit 0; sleep 0.05; i=$((i+1)); done; done; exit 0; done"#
);

/// `$1` pid, `$2` start time, `$3` file, `$4` log: prints `alive` or `gone`, the file's size or
/// `-`, and the number of files of its ring, then a line end and the end of the log. The size of a ring
/// is that of the joined file (see [`JOIN`]).
pub(super) const STATUS: &str = concat!(
    r#": ibscope-look; p=$1; s=$2; f=$3; l=$4; "#,
    alive!(),
    r#"a=gone; alive && a=alive; z=-; k=0; [ -n "$f" ] && for g in "$f"[0-9]*; do [ -e "$g" ] || continue; "#,
    r#"k=$((k+1)); n=$(stat -c %s -- "$g"); z=${z#-}; z=${z:-0}; [ "$n" -lt 24 ] || z=$((z+n-24*(z>0))); done; "#,
    r#"[ -e "$f" ] && z=$(stat -c %s -- "$f"); "#,
    r#"printf '%s %s %s\n' "$a" "$z" "$k"; [ -e "$l" ] && tail -c 4096 -- "$l"; exit 0"#
);

/// `$1` pid, `$2` start time, `$3` signal, `$4` twentieths of a second to wait: prints `gone` or
/// `alive`. A zombie is gone: it only waits to be reaped.
pub(super) const SIGNAL: &str = concat!(
    r#": ibscope-signal; p=$1; s=$2; g=$3; n=$4; "#,
    alive!(),
    r#"alive || { echo gone; exit 0; }; kill -s "$g" "$p" || alive || { echo gone; exit 0; }; i=0; "#,
    r#"while [ "$i" -lt "$n" ]; do alive || { echo gone; exit 0; }; sleep 0.05; i=$((i+1)); done; echo alive"#
);

/// `-e` and an argument, any number of times: finds every process that has one of these arguments
/// and belongs to root or to the current user (other users may give their processes any arguments).
/// Prints a line `P pid start-time state` and a line `A...` for each argument. Line ends in
/// arguments become 0x01.
pub(super) const FIND: &str = concat!(
    r#": ibscope-find; o=$(id -u); for f in $(grep -lzFx "$@" /proc/[0-9]*/cmdline 2>/dev/null); do p=${f#/proc/}; p=${p%/cmdline}; "#,
    r#"u=$(stat -c %u -- "/proc/$p" 2>/dev/null); [ "$u" = 0 ] || [ "$u" = "$o" ] || continue; "#,
    r#"{ read -r t <"/proc/$p/stat"; } 2>/dev/null || continue; set -- ${t##*) }; printf 'P %s %s %s\n' "$p" "${20}" "$1"; "#,
    r#"tr '\0\n' '\n\001' <"$f" 2>/dev/null | sed 's/^/A/'; done; cat /proc/sys/kernel/random/boot_id"#
);

// OpenSSL is several times as fast as coreutils, because it uses the processor's instructions.
macro_rules! digest {
    () => {
        "d() { if command -v openssl >/dev/null; then exec openssl dgst -sha256 -r; else exec sha256sum; fi; }; "
    };
}

/// `$1` file, `$2` number of bytes: SHA-256 of the first `$2` bytes.
pub(super) const HASH: &str =
    concat!(r#": ibscope-hash; "#, digest!(), r#"[ -r "$1" ] || exit 1; head -c "$2" -- "$1" | d"#);

/// `$1` file, `$2` number of files of its ring: joins the files `$1` with a number appended, the oldest
/// first, and removes them. tcpdump writes them in turn, so the one after the newest is the oldest. If two
/// were written at the same time, the newest one begins with the later packet. Each begins with a header
/// of 24 bytes; a shorter one has no packets. A join that was interrupted begins anew.
pub(super) const JOIN: &str = concat!(
    r#": ibscope-join; umask 077; LC_ALL=C; export LC_ALL; f=$1; n=$2; "#,
    r#"l() { for g in "$f"[0-9]*; do set -- $(stat -c %.9Y -- "$g") $(od -An -tu4 -j24 -N8 -- "$g"); "#,
    r#"printf '%s %010d %010d %s\n' "$1" "${2:-0}" "${3:-0}" "$g"; done | sort | tail -n 1; }; "#,
    r#"j() { i=$(l); i=${i#* * * }; i=${i#"$f"}; w=${#i}; case $i in ''|*[!0-9]*) exit 1;; esac; "#,
    r#"while :; do case $i in 0?*) i=${i#0};; *) break;; esac; done; k=0; h=0; "#,
    r#"while [ "$k" -lt "$n" ]; do k=$((k+1)); g=$f$(printf "%0${w}d" $(((i+k)%n))); "#,
    r#"[ -e "$g" ] && [ "$(stat -c %s -- "$g")" -ge 24 ] || continue; "#,
    r#"if [ "$h" = 0 ]; then cat -- "$g" || exit 1; h=1; else tail -c +25 -- "$g" || exit 1; fi; done; }; "#,
    r#"[ -e "$f" ] || { ( j ) >"$f.join" && sync -- "$f.join" && mv -- "$f.join" "$f"; } || exit 1; rm -f -- "$f"[0-9]*"#
);

/// `$1` file, `$2` place of the first byte to print, from 1, `$3` number of bytes that the file must
/// have: prints the bytes from this place on, and on standard error SHA-256 of the whole file. Fails
/// if the file is changed meanwhile. Two programs read the file at the same time, so that the disk
/// reads it once: `tee` passes blocks of 8 KiB on, which halves the throughput.
pub(super) const FETCH: &str = concat!(
    r#": ibscope-fetch; f=$1; o=$2; n=$3; t() { stat -c '%s bytes, %d %i %.9Y' -- "$f"; }; a=$(t) || exit 1; "#,
    digest!(),
    r#"[ "${a%% *}" = "$n" ] || { echo "it has ${a%% *} bytes, and had $n at the end of the capture" >&2; exit 1; }; "#,
    r#"d <"$f" >&2 & tail -c "+$o" -- "$f" || { kill "$!"; exit 1; }; wait "$!" || exit 1; "#,
    r#"[ "$(t)" = "$a" ] || { echo "it was changed while it was read" >&2; exit 1; }"#
);

/// `$1` folder: prints the current user, the folder without links, and user, mode (in hex) and name
/// of the folder and its parents, for both paths.
pub(super) const STAT_FOLDERS: &str = concat!(
    r#": ibscope-folder; id -u; c=$(readlink -m -- "$1"); printf '%s\n' "$c"; f=$1; set -- /; "#,
    r#"for p in "$f" "$c"; do while [ -n "$p" ]; do set -- "$p" "$@"; p=${p%/*}; done; done; "#,
    r#"stat -c '%u %f %n' -- "$@" 2>/dev/null; exit 0"#
);

/// `$1` folder: prints a line `bytes used changed name` for each capture, log and profile of a run in it.
/// `used` is 1 if a process has the file as an argument, otherwise 0; the processes that look for
/// files and delete them do not count. `changed` is the time of the last change in seconds since the
/// epoch, or 0 for a file of another user, who can set this time.
pub(super) const LIST_CAPTURES: &str = concat!(
    r#": ibscope-list; cd -- "$1" 2>/dev/null || exit 0; for f in ibscope-*; do [ -e "$f" ] || continue; b=$(du -sb -- "$f"); u=0; "#,
    r#"for q in $(grep -lzFx -e "$1/$f" /proc/[0-9]*/cmdline 2>/dev/null); do "#,
    r#"case $(tr '\0' '\n' <"$q" 2>/dev/null | head -n 1) in ''|grep|*/rm|timeout|*/timeout|*/sh|sh) ;; *) u=1;; esac; done; "#,
    r#"t=0; [ "$(stat -c %u -- "$f")" != "$(id -u)" ] || t=$(stat -c %Y -- "$f"); "#,
    r#"printf '%s %s %s %s\n' "${b%%[!0-9]*}" "$u" "${t:-0}" "$f"; done; exit 0"#
);

/// `$1` folder: creates it for the current user only, unless another process has just created it.
/// Its parent must exist.
pub(super) const MAKE_FOLDER: &str = r#": ibscope-make; umask 077; mkdir -- "$1" 2>/dev/null || [ -d "$1" ]"#;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, FileTimes};
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    fn run(script: &str, arguments: &[&str]) -> String {
        let output = Command::new("/bin/sh").args(["-c", script, "sh"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A file of a ring: a header of 24 bytes, and a record without data for each time.
    fn write_ring_file(path: &Path, header: &[u8], times: &[u32], written_ms: u64) {
        let record = |time: &u32| [time.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        fs::write(path, [header, &times.iter().flat_map(record).collect::<Vec<u8>>()].concat()).unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + written_ms);
        File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(written)).unwrap();
    }

    /// Packets 1 to `packets` are written to a ring, two to a file: its newest files are joined in the
    /// order of their packets, and the size is known before.
    #[test]
    fn files_of_a_ring_are_joined_in_their_order() {
        let folder = tempfile::Builder::new().prefix("a folder").tempdir().unwrap();
        let file = folder.path().join("a.pcap");
        let path = file.to_str().unwrap();
        for ring in [3, 11] {
            let width = (ring - 1_u32).to_string().len();
            for packets in
                [1, 2, 3, 2 * ring - 1, 2 * ring, 2 * ring + 1, 2 * ring + 4, 4 * ring, 4 * ring + 1, 5 * ring + 8]
            {
                // The next to last file was written in the same moment as the last one.
                let last = (packets - 1) / 2;
                for number in 0..=last {
                    let times: Vec<u32> = (2 * number + 1..=packets.min(2 * number + 2)).collect();
                    let place = folder.path().join(format!("a.pcap{:0width$}", number % ring));
                    let written = if number + 1 == last { last } else { number };
                    write_ring_file(&place, b"header-of-twenty-4-bytes", &times, u64::from(written));
                }
                let size = run(STATUS, &["1", "0", path, ""]);
                run(JOIN, &[path, &ring.to_string()]);
                let joined = fs::read(&file).unwrap();
                assert_eq!(size, format!("gone {} {}\n", joined.len(), ring.min(last + 1)));
                assert!(joined.starts_with(b"header-of-twenty-4-bytes"));
                let times = joined[24..].chunks(16).map(|record| u32::from_ne_bytes(record[..4].try_into().unwrap()));
                let first = 2 * (last + 1).saturating_sub(ring) + 1;
                assert_eq!(times.collect::<Vec<u32>>(), (first..=packets).collect::<Vec<u32>>(), "{ring} {packets}");
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
                fs::remove_file(&file).unwrap();
            }
        }
        // A program that was killed may not have written the header of its last file.
        write_ring_file(&folder.path().join("a.pcap0"), b"header-of-twenty-4-bytes", &[1], 0);
        write_ring_file(&folder.path().join("a.pcap1"), b"head", &[], 1);
        fs::write(folder.path().join("a.pcap.join"), "of a join that was interrupted").unwrap();
        assert_eq!(run(STATUS, &["1", "0", path, ""]), "gone 40 2\n");
        run(JOIN, &[path, "2"]);
        assert_eq!(fs::read(&file).unwrap().len(), 40);
        // A join that was killed before it had removed the files.
        write_ring_file(&folder.path().join("a.pcap0"), b"header-of-twenty-4-bytes", &[1], 0);
        run(JOIN, &[path, "2"]);
        assert_eq!((fs::read(&file).unwrap().len(), fs::read_dir(folder.path()).unwrap().count()), (40, 1));
    }

    /// The time of a file counts only if nobody else can set it.
    #[test]
    fn captures_are_listed_with_the_time_of_their_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, length, changed_s) in [("ibscope-1-a.pcap", 5, 1_700_000_000), ("ibscope-2-b.log", 0, 1_600_000_000)]
        {
            fs::write(at(name), vec![0; length]).unwrap();
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed_s);
            File::options()
                .write(true)
                .open(at(name))
                .unwrap()
                .set_times(FileTimes::new().set_modified(changed))
                .unwrap();
        }
        fs::write(at("notes"), "").unwrap();
        let listed = || run(LIST_CAPTURES, &[folder.path().to_str().unwrap()]);
        assert_eq!(listed(), "5 0 1700000000 ibscope-1-a.pcap\n0 0 1600000000 ibscope-2-b.log\n");
        if std::os::unix::fs::chown(at("ibscope-2-b.log"), Some(65_534), None).is_ok() {
            assert_eq!(listed(), "5 0 1700000000 ibscope-1-a.pcap\n0 0 0 ibscope-2-b.log\n");
        } else {
            eprintln!("SKIPPED: only root can give files to others");
        }
    }

    #[test]
    fn the_output_of_a_command_begins_after_the_mark() {
        let printed = run(RUN, &["5", "1", "/bin/echo", "a b"]);
        assert_eq!(printed.strip_prefix(OUTPUT_MARK), Some("a b\n"));
    }

    #[test]
    fn scripts_are_identified_by_their_first_words() {
        let launching = [LAUNCH, SUPERVISE, EXEC_PROGRAM];
        for script in
            [RUN, CANCEL_LAUNCH, STATUS, SIGNAL, FIND, HASH, JOIN, FETCH, WATCH, LIST_CAPTURES].iter().chain(&launching)
        {
            assert!(script.starts_with(SCRIPT_PREFIX) && !script.contains('\n'), "{script}");
            assert_eq!(script.starts_with(LAUNCH_PREFIX), launching.contains(script), "{script}");
        }
    }
}
