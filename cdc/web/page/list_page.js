// A searched, paged list of the server: the form, the list, the pager. The address has the search.
import { DocumentPart } from "./document.js";
import { el } from "./dom.js";
import { choice, empty, field, pager } from "./parts.js";
import { amend, link } from "./router.js";

export const LIMIT = 100;
const TYPING_MS = 200;

/**
 * Draw the page. `path`: its address and `/api/` document; `states`: [value, words] of a filter, or null;
 * `draw(found)` -> the list. Returns a function that ends it.
 */
export function listPage(root, query, { path, what, states = null, draw, nothing, extra = null }) {
  const now = { search: query.search ?? "", state: query.state ?? "", offset: query.offset ?? "" };
  const search = el("input", { type: "search", value: now.search, placeholder: "Search", autocomplete: "off", spellcheck: "false" });
  const form = el("form", { class: "filters", role: "search" }, field(`Search ${what}`, search),
    states === null ? null : choice("State", states, now.state, (value) => {
      now.state = value;
      changed();
    }), extra);
  const asked = () => ({ search: now.search, state: now.state, offset: now.offset || "0", limit: LIMIT });
  root.append(form);
  const part = new DocumentPart(root, {
    path: `/api/${path}`, query: asked(), what, everyS: 5,
    draw: (found) => {
      const rows = found[path] ?? [];
      if (rows.length === 0) {
        const outside = found.count > 0 ? el("p", {}, el("a", { href: link(path, { ...now, offset: "" }) }, "Back to the first page")) : null;
        return [empty(now.search || now.state ? `No ${what} match.` : nothing), outside];
      }
      return [draw(rows, () => part.reload()), pager(found, LIMIT, rows.length, (offset) => link(path, { ...now, offset: offset || "" }))];
    },
  });
  let typing = null;
  const changed = () => {
    clearTimeout(typing);
    now.offset = "";
    amend(path, now);
    part.reload(asked());
  };
  search.addEventListener("input", () => {
    now.search = search.value.trim();
    clearTimeout(typing);
    typing = setTimeout(changed, TYPING_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    changed();
  });
  return () => {
    clearTimeout(typing);
    part.close();
  };
}
