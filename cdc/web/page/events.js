// The tail of events, with filters. Values are shown only with the token.
import { read } from "./api.js";
import { askToken } from "./dialogs.js";
import { announce, el, replace, setText } from "./dom.js";
import { eventItem } from "./event_list.js";
import { plural, time } from "./format.js";
import { button, field, problem } from "./parts.js";
import { amend } from "./router.js";
import { session, token } from "./session.js";

const EVERY_MS = 2000;
const SHOWN_MAX = 500;
const LIMIT = 200;
const OPS = [["c", "inserts"], ["u", "updates"], ["d", "deletes"], ["r", "snapshot rows"]];

export function open(root, query) {
  const tail = new Tail(root, query);
  tail.restart();
  return () => tail.close();
}

class Tail {
  constructor(root, query) {
    this.filters = { tables: query.tables ?? "", ops: query.ops ?? "", key: query.key ?? "" };
    this.cursor = "";
    this.paused = false;
    this.stop = new AbortController();
    this.timer = null;
    this.readAt = null;
    this.status = el("p", { class: "as-of" });
    this.failure = el("div", { class: "failure" });
    this.values = el("div");
    this.list = el("ol", { class: "events", "aria-label": "Events, newest first" });
    root.append(this.form(), this.status, this.failure, this.values, this.list);
  }

  form() {
    const tables = el("input", { type: "search", value: this.filters.tables, placeholder: "public.orders, public.items", spellcheck: "false" });
    const key = el("input", { type: "text", value: this.filters.key, placeholder: '{"id": 7}', spellcheck: "false", autocomplete: "off" });
    const boxes = OPS.map(([op, words]) => {
      const box = el("input", { type: "checkbox", checked: this.filters.ops === "" || this.filters.ops.split(",").includes(op), value: op });
      return [box, el("label", { class: "check" }, box, words)];
    });
    this.pause = button("Pause", () => this.togglePause());
    const form = el("form", { class: "filters", role: "search" }, field("Tables", tables), field("Key (JSON)", key),
      el("fieldset", { class: "checks" }, el("legend", { class: "hidden-text" }, "Kinds of events"), boxes.map(([, label]) => label)), this.pause);
    const changed = () => {
      const chosen = boxes.filter(([box]) => box.checked).map(([box]) => box.value);
      const ops = chosen.length === OPS.length ? "" : chosen.join(",") || "none";
      this.filters = { tables: tables.value.replaceAll(/\s/g, ""), ops, key: key.value.trim() };
      amend("events", this.filters);
      this.restart();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      changed();
    });
    form.addEventListener("change", changed);
    return form;
  }

  /** Forget what is shown and read the newest events. */
  restart() {
    this.stop.abort();
    this.stop = new AbortController();
    clearTimeout(this.timer);
    this.cursor = "";
    this.readAt = null;
    replace(this.list);
    setText(this.status, "Reading events ...");
    if (this.filters.ops === "none") {
      setText(this.status, "No kind of event is chosen.");
      return;
    }
    this.poll(this.stop.signal);
  }

  async poll(signal) {
    if (!document.hidden && !this.paused) {
      try {
        this.show(await read("/api/events", { ...this.filters, cursor: this.cursor, limit: LIMIT }, signal));
      } catch (error) {
        if (signal.aborted) return;
        this.fail(error);
      }
    }
    if (!signal.aborted) this.timer = setTimeout(() => this.poll(signal), EVERY_MS);
  }

  show(found) {
    if (this.stop.signal.aborted) return;
    this.cursor = found.cursor ?? this.cursor;
    this.readAt = new Date();
    replace(this.failure);
    this.list.classList.remove("old");
    this.status.classList.remove("old");
    // The server's order is the log's: the newest event comes last, and is shown first.
    for (const one of found.events ?? []) this.list.prepend(eventItem(one));
    while (this.list.childElementCount > SHOWN_MAX) this.list.lastElementChild.remove();
    this.showValues(found);
    const none = this.list.childElementCount === 0;
    setText(this.status, none ? `No events match, as of ${time(this.readAt)}` : `${plural(this.list.childElementCount, "event")}, as of ${time(this.readAt)}`);
  }

  showValues(found) {
    const words = found.values ? "" : session?.token_configured === false
      ? "This server has no token (http.token), so keys and values of rows are not shown."
      : "Keys and values of rows are shown only with the token.";
    if (this.values.dataset.words === words) return;
    this.values.dataset.words = words;
    replace(this.values, words ? el("p", { class: "note" }, words, " ",
      session?.token_configured === false || token() ? null : button("Enter token", async () => (await askToken()) && this.restart())) : null);
  }

  fail(error) {
    if (this.failure.textContent === "") announce(`Cannot read events: ${error.message}`);
    replace(this.failure, problem({ message: `Cannot read events: ${error.message}`, hint: error.hint, command: error.command }));
    this.list.classList.add("old");
    this.status.classList.add("old");
    setText(this.status, this.readAt === null ? "" : `Old data, as of ${time(this.readAt)}`);
  }

  togglePause() {
    this.paused = !this.paused;
    setText(this.pause, this.paused ? "Continue" : "Pause");
    if (this.paused) setText(this.status, `Paused. Events up to ${time(this.readAt)}`);
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }
}
