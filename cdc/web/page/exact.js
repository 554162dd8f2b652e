// JSON with numbers as they were written. JSON.parse rounds a bigint such as 9007199254740993, which would show a
// wrong key and send it back in an action.
class ExactNumber {
  constructor(source) {
    this.source = source;
  }
}

/** Parse JSON. A number that would not come out the same is kept as its text; `jsonText` writes it back. */
export function parseExact(text) {
  return JSON.parse(text, (_name, value, context) => {
    if (typeof value !== "number" || context?.source === undefined) return value;
    return String(value) === context.source ? value : new ExactNumber(context.source);
  });
}

/** Return compact JSON of a value of `parseExact`. */
export function jsonText(value) {
  if (value instanceof ExactNumber) return value.source;
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const pairs = Object.entries(value).filter(([, inner]) => inner !== undefined);
    return `{${pairs.map(([name, inner]) => `${JSON.stringify(name)}:${jsonText(inner)}`).join(",")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

/** Return a value as people read it: texts without quotes. */
export const shown = (value) => (typeof value === "string" ? value : jsonText(value));

/** Return a key as people read it: `id=7`, or `a=1, b=2`. */
export function shownKey(key) {
  if (key === null || typeof key !== "object" || key instanceof ExactNumber) return shown(key);
  return Object.entries(key).map(([name, value]) => `${name}=${shown(value)}`).join(", ");
}
