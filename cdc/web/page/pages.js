// The pages: address, name, key after `g`, and the module that draws it. `open(root, query)` of a module draws the page
// and returns a function that ends it.
export const PAGES = [
  { path: "", name: "Overview", key: "o", load: () => import("./overview.js") },
  { path: "tables", name: "Tables", key: "t", load: () => import("./tables.js") },
  { path: "topics", name: "Topics", key: "k", load: () => import("./topics.js") },
  { path: "sinks", name: "Sinks", key: "s", load: () => import("./sinks.js") },
  { path: "lake", name: "Lake", key: "l", load: () => import("./lake.js") },
  { path: "events", name: "Events", key: "e", load: () => import("./events.js") },
  { path: "dead-letters", name: "Dead letters", key: "d", load: () => import("./dead_letters.js") },
  { path: "findings", name: "DDL findings", key: "f", load: () => import("./findings.js") },
  { path: "alarms", name: "Alarms", key: "a", load: () => import("./alarms.js") },
  { path: "actions", name: "Actions", key: "h", load: () => import("./actions.js") },
  { path: "config", name: "Configuration", key: "c", load: () => import("./config.js") },
  { path: "table", name: "Table", parent: "tables", load: () => import("./table_details.js") },
  { path: "view", name: "View", parent: "lake", load: () => import("./view_details.js") },
  { path: "key", name: "History of a key", parent: "events", load: () => import("./key_history.js") },
];

export const pageAt = (path) => PAGES.find((page) => page.path === path) ?? null;
