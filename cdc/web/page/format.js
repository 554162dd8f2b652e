// Numbers, times and durations as text, with their units. Times are UTC, as in the log.
const COUNT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const UNKNOWN = "–";
const STEPS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** 12345 -> 12,345 */
export const count = (value) => (known(value) ? COUNT.format(value) : UNKNOWN);

/** `1 row`, `2 rows` */
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** 1234567 -> 1.2 MiB, as the commands write sizes */
export const bytes = (value) => (known(value) ? scaled(value, "B") : UNKNOWN);

function scaled(value, unit) {
  let step = 0;
  let left = Math.abs(value);
  while (left >= 1023.5 && step < STEPS.length - 1) {
    left /= 1024;
    step += 1;
  }
  const digits = step === 0 || left >= 99.5 ? 0 : 1;
  return `${value < 0 ? "-" : ""}${Number(left.toFixed(digits))} ${STEPS[step]}${unit}`;
}

/** A rate in `unit`: B/s are scaled, others are counted. */
export function rate(value, unit) {
  if (!known(value)) return `${UNKNOWN} ${unit}`;
  if (unit === "B/s") return scaled(value, "B/s");
  return `${decimal(value)} ${unit}`;
}

/** 0.42 -> 0.4; 312.4 -> 312 */
export function decimal(value) {
  if (!known(value)) return UNKNOWN;
  return value !== 0 && Math.abs(value) < 9.95 && !Number.isInteger(value) ? value.toFixed(1) : COUNT.format(value);
}

/** 0.42 -> 0.4 s; 190 -> 3 min; 7500 -> 2 h 5 min */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 0) return duration(0);
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** A lag in its unit. */
export function lag(value, unit) {
  if (!known(value)) return UNKNOWN;
  if (unit === "B") return bytes(value);
  if (unit === "s") return duration(value);
  return `${count(value)} ${unit ?? ""}`.trim();
}

/** 10:03:05 UTC, with the date unless it is today. */
export function time(iso) {
  const date = iso instanceof Date ? iso : new Date(iso ?? NaN);
  if (Number.isNaN(date.getTime())) return UNKNOWN;
  const text = date.toISOString();
  const clock = `${text.slice(11, 19)} UTC`;
  return text.slice(0, 10) === new Date().toISOString().slice(0, 10) ? clock : `${text.slice(0, 10)} ${clock}`;
}

export const text = (value) => (value === null || value === undefined || value === "" ? UNKNOWN : String(value));
