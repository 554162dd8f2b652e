// The history of one key, from its topic. Needs the token.
import { read } from "./api.js";
import { askToken } from "./dialogs.js";
import { el, replace } from "./dom.js";
import { eventItem } from "./event_list.js";
import { plural, time } from "./format.js";
import { empty, field, problem } from "./parts.js";
import { amend } from "./router.js";
import { token } from "./session.js";

export function open(root, query) {
  const stop = new AbortController();
  const name = el("input", { type: "search", value: query.table ?? "", placeholder: "public.orders", required: true, spellcheck: "false" });
  const key = el("input", { type: "text", value: query.key ?? "", placeholder: '{"id": 7}', required: true, spellcheck: "false", autocomplete: "off" });
  const found = el("div");
  const form = el("form", { class: "filters", role: "search" }, field("Table", name), field("Key (JSON)", key), el("button", { type: "submit", class: "main-button" }, "Show history"));
  const load = async () => {
    if (!token() && !(await askToken("The history of a key has values of rows, so it needs the token of the setting http.token."))) {
      replace(found, empty("The history needs the token."));
      return;
    }
    replace(found, empty("Reading the topic ..."));
    try {
      const answer = await read("/api/key", { table: name.value.trim(), key: key.value.trim() }, stop.signal);
      replace(found, draw(answer.events ?? []));
    } catch (error) {
      if (!stop.signal.aborted) replace(found, problem({ message: `Cannot read the history: ${error.message}`, hint: error.hint, command: error.command }));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    amend("key", { table: name.value.trim(), key: key.value.trim() });
    load();
  });
  root.append(form, found);
  if (query.table && query.key) load();
  return () => stop.abort();
}

function draw(events) {
  if (events.length === 0) return empty("The topic has no event of this key. A compacted topic keeps the newest one of each key.");
  const items = events.map((one) => eventItem(one, { history: false }));
  items.at(-1).querySelector("details").open = true;
  return [el("p", { class: "as-of" }, `${plural(events.length, "event")}, oldest first, as of ${time(new Date())}`),
    el("ol", { class: "events", "aria-label": "Events of the key, oldest first" }, items)];
}
