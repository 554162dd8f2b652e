// Addresses of pages: `#/tables?search=orders`.

/** Return the path (`tables`; empty for the overview) and the parameters of a hash. */
export function parse(hash) {
  const [path, query = ""] = split(hash.replace(/^#\/?/, ""));
  return { path, query: Object.fromEntries(new URLSearchParams(query)) };
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** Return the address of a page. Empty parameters are left out. */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(given).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

/** Go to a page. */
export function go(path, query = {}) {
  location.hash = link(path, query);
}

/** Change the address of the shown page without a new entry in the history, and without drawing it again. */
export function amend(path, query) {
  history.replaceState(null, "", link(path, query));
}
