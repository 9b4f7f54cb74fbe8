//! The few lines of shell that run on nodes. They are constant: what varies comes in as positional parameters and stands in quotes wherever it is used.
//!
//! Every script begins with `: ibscope`, by which its own processes are told from the programs that are looked for in `/proc`.
//! They need a POSIX shell, coreutils, grep, sed and setsid (util-linux), and Linux's `/proc`. No script holds a line end, because not every login shell takes one
//! inside quotes.

/// How the scripts begin that a program's arguments go through before it runs.
pub(super) const LAUNCHES: &str = ": ibscope-launch;";
/// How the one begins that looks for processes: it has their arguments too.
pub(super) const FINDS: &str = ": ibscope-find;";
/// How all of them begin.
pub(super) const OURS: &str = ": ibscope";

/// Runs the command `$3...` with our PATH; `timeout` ends it after `$1` seconds and kills it `$2` seconds later, so that nothing is left on the node.
pub(super) const RUN: &str = r#": ibscope-run; PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH; t=$1; k=$2; shift 2; exec timeout -k "$k" "$t" "$@""#;

/// `$1` [`SUPERVISE`], `$2` [`BECOME`], `$3` log, then the program and its arguments: starts it on its own, away from the connection, and prints boot id and
/// `/proc/PID/stat` of it. The log must not exist: who creates it decides whether the program starts (see [`CLAIM`]).
pub(super) const LAUNCH: &str = concat!(
    r#": ibscope-launch; umask 077; set -C; s=$1; b=$2; l=$3; shift 3; true >"$l" || exit 90; "#,
    r#"setsid -f /bin/sh -c "$s" sh "$b" "$@" 3>&1 >>"$l" 2>&1 </dev/null | { read -r r && printf '%s\n' "$r"; }"#
);
/// Waits for the program and adds its exit status to the log. It lives through the signals that are meant for the program. It is no background job of a
/// shell's: those are deaf to SIGINT, and so would be the program.
pub(super) const SUPERVISE: &str = concat!(
    r#": ibscope-launch; trap : INT TERM HUP; b=$1; shift; /bin/sh -c "$b" sh "$@"; s=$?; "#,
    r#"printf '\nibscope: exit status %s\n' "$s""#
);
/// Tells its process and becomes the program.
pub(super) const BECOME: &str = concat!(
    r#": ibscope-launch; read -r b </proc/sys/kernel/random/boot_id; read -r l <"/proc/$$/stat"; "#,
    r#"printf '%s %s\n' "$b" "$l" >&3; exec "$@" 3>&-"#
);
/// Before the exit status in a log.
pub(super) const EXIT_STATUS: &str = "ibscope: exit status ";

/// `$1` log: takes its name, so that a launch that is still under way does not start. `claimed`, `started` where the log is there, `nowhere` without its folder.
pub(super) const CLAIM: &str = concat!(
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

/// `$1` pid, `$2` start time, `$3` file, `$4` log: `alive` or `gone`, the file's size or `-`, and on the lines after that the end of the log.
pub(super) const LOOK: &str = concat!(
    r#": ibscope-look; p=$1; s=$2; f=$3; l=$4; "#,
    alive!(),
    r#"a=gone; alive && a=alive; z=-; [ -e "$f" ] && z=$(stat -c %s -- "$f"); "#,
    r#"printf '%s %s\n' "$a" "$z"; [ -e "$l" ] && tail -c 4096 -- "$l"; exit 0"#
);

/// `$1` pid, `$2` start time, `$3` signal, `$4` how many twentieths of a second to wait: `gone` or `alive`. A zombie is gone: it only waits to be reaped.
pub(super) const SIGNAL: &str = concat!(
    r#": ibscope-signal; p=$1; s=$2; g=$3; n=$4; "#,
    alive!(),
    r#"alive || { echo gone; exit 0; }; kill -s "$g" "$p" || alive || { echo gone; exit 0; }; i=0; "#,
    r#"while [ "$i" -lt "$n" ]; do alive || { echo gone; exit 0; }; sleep 0.05; i=$((i+1)); done; echo alive"#
);

/// `-e` and an argument, any number of times: every process that has one of them among its own and
/// that belongs to root or to the user who asks (other users may give their processes any
/// arguments). Prints a line `P pid start-time state` and a line `A...` for each argument. Line
/// ends in arguments become 0x01.
pub(super) const FIND: &str = concat!(
    r#": ibscope-find; o=$(id -u); for f in $(grep -lzFx "$@" /proc/[0-9]*/cmdline 2>/dev/null); do p=${f#/proc/}; p=${p%/cmdline}; "#,
    r#"u=$(stat -c %u -- "/proc/$p" 2>/dev/null); [ "$u" = 0 ] || [ "$u" = "$o" ] || continue; "#,
    r#"{ read -r t <"/proc/$p/stat"; } 2>/dev/null || continue; set -- ${t##*) }; printf 'P %s %s %s\n' "$p" "${20}" "$1"; "#,
    r#"tr '\0\n' '\n\001' <"$f" 2>/dev/null | sed 's/^/A/'; done; cat /proc/sys/kernel/random/boot_id"#
);

/// `$1` file, `$2` bytes: SHA-256 of so many bytes from its start.
pub(super) const HASH: &str = r#": ibscope-hash; [ -r "$1" ] || exit 1; head -c "$2" -- "$1" | sha256sum"#;

/// `$1` folder: the user who asks, the folder without links, and for it and each folder above it, on both ways, user, mode (in hex) and name.
pub(super) const FOLDER: &str = concat!(
    r#": ibscope-folder; id -u; c=$(readlink -m -- "$1"); printf '%s\n' "$c"; f=$1; set -- /; "#,
    r#"for p in "$f" "$c"; do while [ -n "$p" ]; do set -- "$p" "$@"; p=${p%/*}; done; done; "#,
    r#"stat -c '%u %f %n' -- "$@" 2>/dev/null; exit 0"#
);

/// `$1` folder: makes it, for its user alone, unless somebody has just made it. What is above it must be there.
pub(super) const MAKE: &str = r#": ibscope-make; umask 077; mkdir -- "$1" 2>/dev/null || [ -d "$1" ]"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_told_by_their_first_words() {
        let launching = [LAUNCH, SUPERVISE, BECOME];
        for script in [RUN, CLAIM, LOOK, SIGNAL, FIND, HASH].iter().chain(&launching) {
            assert!(script.starts_with(OURS) && !script.contains('\n'), "{script}");
            assert_eq!(script.starts_with(LAUNCHES), launching.contains(script), "{script}");
        }
    }
}
