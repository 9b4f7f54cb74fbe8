// Number formats, the same as in the program's other outputs.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// An integer with its digits in groups of three.
function group(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/// A value in three digits, or fewer where these are exact.
function digits(value) {
  const text = value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
  const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return Number(short) === value ? short : text;
}

function bytes(value) {
  let power = 0;
  while (value >= 1023.5 && power + 1 < BYTE_UNITS.length) {
    value /= 1024;
    power += 1;
  }
  return `${power === 0 ? group(Math.round(value)) : digits(value)} ${BYTE_UNITS[power]}`;
}

/// A count, abbreviated.
function count(value) {
  const units = ["", "k", "M", "G", "T", "P"];
  if (value < 10000) return Number.isInteger(value) ? String(value) : digits(value);
  let power = 0;
  while (value >= 999.5 && power + 1 < units.length) {
    value /= 1000;
    power += 1;
  }
  return digits(value) + units[power];
}

/// A rate per second: bytes in binary units, counts in decimal ones.
function perSecond(value, isBytes) {
  if (isBytes) return `${bytes(value)}/s`;
  const units = ["", "k", "M", "G", "T", "P"];
  let power = 0;
  while (value >= 999.5 && power + 1 < units.length) {
    value /= 1000;
    power += 1;
  }
  return `${digits(value)}${units[power]} /s`;
}

/// A time in nanoseconds, with a unit.
function time(ns) {
  if (ns === 0) return "0";
  const [unit, name] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${digits(ns / unit)} ${name}`;
}

/// Nanoseconds as exact seconds, in the format of `--from` and `--to`.
function seconds(ns) {
  const whole = Math.max(0, Math.round(ns));
  const text = String(whole % 1e9).padStart(9, "0").replace(/0+$/, "");
  return `${Math.floor(whole / 1e9)}${text ? "." + text : ""}`;
}

/// The range of sizes of a class (one power of two).
function sizeClass(from) {
  if (from < 2) return `${from} B`;
  // Rounded to three digits, the last size of the class would equal the next class.
  return from < 1024 ? `${from} – ${from * 2 - 1} B` : `${bytes(from)} to < ${bytes(from * 2)}`;
}

/// A text with a capital letter.
function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
