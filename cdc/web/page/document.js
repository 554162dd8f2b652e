// Shows a document of the server, reads it again, and says when it is old.
import { read } from "./api.js";
import { announce, el, replace, setText } from "./dom.js";
import { time } from "./format.js";
import { problem } from "./parts.js";

/**
 * A part of a page that shows one document. `draw(found)` returns its nodes. The document is read again every `everyS`
 * seconds while the tab is visible; 0: only on `reload`. What is shown stays while a request fails, with its time.
 */
export class DocumentPart {
  constructor(root, { path, query = {}, what, everyS = 10, draw, report = null }) {
    Object.assign(this, { path, query, what, everyS, draw, report });
    this.status = el("p", { class: "as-of" });
    this.failure = el("div", { class: "failure" });
    this.body = el("div", { class: "document" });
    root.append(this.status, this.failure, this.body);
    this.drawn = null;
    this.readAt = null;
    this.timer = null;
    this.stop = new AbortController();
    this.reload();
  }

  /** Read the document now, with other parameters if given. */
  async reload(query = this.query) {
    clearTimeout(this.timer);
    this.stop.abort();
    this.stop = new AbortController();
    const { signal } = this.stop;
    if (query !== this.query) this.body.classList.add("waiting");
    this.query = query;
    if (this.readAt === null) setText(this.status, `Reading ${this.what} ...`);
    try {
      const found = await read(this.path, query, signal);
      if (signal.aborted) return;
      this.show(found);
    } catch (error) {
      if (signal.aborted) return;
      this.fail(error);
    }
    if (this.everyS > 0 && !signal.aborted) this.later(signal);
  }

  later(signal) {
    this.timer = setTimeout(() => {
      if (signal.aborted) return;
      if (document.hidden) this.later(signal);
      else this.reload();
    }, this.everyS * 1000);
  }

  show(found) {
    this.readAt = new Date();
    setText(this.status, `As of ${time(this.readAt)}`);
    this.status.classList.remove("old");
    this.failure.replaceChildren();
    this.body.classList.remove("old", "waiting");
    this.report?.(found);
    const drawn = JSON.stringify(found);
    if (drawn === this.drawn || isSelecting(this.body)) return;
    this.drawn = drawn;
    const key = this.body.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const opened = new Set([...this.body.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
    replace(this.body, this.draw(found));
    for (const one of this.body.querySelectorAll("details[data-key]")) one.open ||= opened.has(one.dataset.key);
    if (key !== undefined) [...this.body.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
  }

  fail(error) {
    this.body.classList.remove("waiting");
    const words = { message: `Cannot read ${this.what}: ${error.message}`, hint: error.hint, command: error.command };
    if (this.failure.textContent === "") announce(words.message);
    replace(this.failure, problem(words));
    if (this.readAt === null) {
      setText(this.status, "");
      return;
    }
    setText(this.status, `Old data, as of ${time(this.readAt)}`);
    this.status.classList.add("old");
    this.body.classList.add("old");
  }

  close() {
    clearTimeout(this.timer);
    this.stop.abort();
  }
}

// A text that somebody is selecting must not go away under the pointer.
function isSelecting(root) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && root.contains(selection.anchorNode);
}
