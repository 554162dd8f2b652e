// Small parts of every page: badges, errors, tables, pagers.
import { announce, el } from "./dom.js";
import { count } from "./format.js";
import { icon, levelOf } from "./icons.js";

/** A word with the shape and the colour of its level. */
export const badge = (level, word) => el("span", { class: `badge ${levelOf(level)}` }, icon(level), word);

export const code = (text) => el("code", {}, text);

/** A command to try, with a button that copies it where the browser allows it. */
export function command(text) {
  if (!text) return null;
  const copy = el("button", { type: "button", class: "copy", "aria-label": `Copy ${text}` }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
      announce("Copied");
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  return el("div", { class: "command" }, el("code", {}, text), navigator.clipboard ? copy : null);
}

/** What failed, what to do, and a command to try. `error`: `message` or `error`, `hint`, `command`. */
export function problem(error, level = "bad", head = null) {
  return el("div", { class: `problem ${levelOf(level)}` }, head,
    el("p", { class: "says" }, icon(level), error.message || error.error || "unknown error"),
    error.hint ? el("p", { class: "hint" }, error.hint) : null,
    command(error.command));
}

export const empty = (text) => el("p", { class: "empty" }, text);

/** A section with a heading. */
export const section = (heading, ...children) => el("section", { class: "part" }, el("h2", {}, heading), children);

/** Pairs of a term and its text or node. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/**
 * A table. `columns`: `head`, `cell(row)` -> node or text, `kind` (class of the cells: number, wide). On a phone each
 * row becomes a block in which every cell names its column; not if it is `compact`, for a few narrow columns.
 */
export function table(caption, columns, rows, { compact = false } = {}) {
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col", class: column.kind }, column.head)));
  const body = rows.map((row) => el("tr", {}, columns.map((column, position) => el(
    position === 0 ? "th" : "td",
    { scope: position === 0 ? "row" : null, class: column.kind, data: compact ? {} : { label: column.head } },
    el("div", {}, column.cell(row)),
  ))));
  return el("div", { class: "scroll" }, el("table", { class: compact ? "compact" : null },
    el("caption", { class: "hidden-text" }, caption), el("thead", {}, head), el("tbody", {}, body)));
}

/** A bar with its percentage in words. `label` names it for screen readers. */
export function progress(done, all, label) {
  if (!all) return null;
  const percent = Math.min(100, Math.floor((100 * done) / all));
  return el("span", { class: "progress" },
    el("progress", { max: all, value: Math.min(done, all), "aria-label": label }), el("span", {}, `${percent}%`));
}

/** Links to the previous and next page of a list. `link(offset)` -> address. */
export function pager(found, limit, shownCount, link) {
  const first = found.count === 0 ? 0 : found.offset + 1;
  const last = found.offset + shownCount;
  const previous = found.offset > 0 ? link(Math.max(0, found.offset - limit)) : null;
  const next = last < found.count ? link(found.offset + limit) : null;
  const step = (target, words, key) => (target === null
    ? el("span", { class: "step off" }, words)
    : el("a", { class: "step", href: target, data: { key } }, words));
  return el("nav", { class: "pager", "aria-label": "Pages of the list" },
    step(previous, "Previous", "previous"),
    el("span", { class: "numbers" }, `${count(first)}–${count(last)} of ${count(found.count)}`),
    step(next, "Next", "next"));
}

/** A labelled control. */
export const field = (label, control) => el("label", { class: "field" }, el("span", {}, label), control);

/** A choice between a few values. `options`: [value, words]. */
export function choice(label, options, selected, chosen) {
  const control = el("select", {}, options.map(([value, words]) => el("option", { value, selected: value === selected }, words)));
  control.addEventListener("change", () => chosen(control.value));
  return field(label, control);
}

export function button(words, pressed, { kind = "", key = "" } = {}) {
  return el("button", { type: "button", class: kind, data: key ? { key } : {}, on: { click: pressed } }, words);
}

/** Link to a page of the documentation, which this server serves in the version that runs; `path` is that in the repository. */
export const runbook = (path) => el("a", { href: `/${path}`, target: "_blank" }, "Runbook: ", path.replace(/^docs\//, ""));
