// The picture of the pipeline, from server-sent events. Without them, by polling. Says when it is old.
import { read, relative } from "./api.js";

const SILENT_MS = 5000;
const RETRY_MS = 5000;
const POLL_MS = 2000;

/** The newest picture; null before the first one. */
export let picture = null;
let receivedMs = 0;
const begunMs = Date.now();
let source = null;
let silent = false;
const listeners = new Set();

/** Call `listener(picture)` for each picture, and with null when the stream turns silent. Returns a function to end. */
export function onPicture(listener) {
  listeners.add(listener);
  if (picture !== null) listener(picture);
  return () => listeners.delete(listener);
}

/** Whether no event arrived for five seconds. */
export const isSilent = () => silent;
/** When the newest picture arrived, in ms; 0 before the first one. */
export const receivedAt = () => receivedMs;
/** Seconds without data, also before the first picture. */
export const silentSeconds = () => Math.round((Date.now() - (receivedMs || begunMs)) / 1000);

export function startStream() {
  connect();
  setInterval(watch, 500);
  // A hidden tab holds none of the server's streams, nor one of the browser's six connections.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else connect();
  });
}

function connect() {
  disconnect();
  const opened = new EventSource(relative("/api/stream"));
  source = opened;
  opened.addEventListener("picture", (event) => {
    let found;
    try {
      found = JSON.parse(event.data);
    } catch {
      return; // cut off: the next one is complete
    }
    receive(found);
  });
  opened.addEventListener("error", () => {
    // The browser connects again by itself, except after an error code: then the server has too many streams.
    if (opened.readyState === EventSource.CLOSED && source === opened) {
      source = null;
      pollUntil(Date.now() + RETRY_MS);
    }
  });
}

function disconnect() {
  source?.close();
  source = null;
}

async function pollUntil(endMs) {
  while (source === null && !document.hidden) {
    if (Date.now() >= endMs) {
      connect();
      return;
    }
    try {
      receive(await read("/api/picture"));
    } catch {
      // The notice of old data says it.
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

function receive(found) {
  picture = found;
  receivedMs = Date.now();
  silent = false;
  for (const listener of listeners) listener(found);
}

function watch() {
  const late = !document.hidden && Date.now() - (receivedMs || begunMs) > SILENT_MS;
  if (late === silent) return;
  silent = late;
  if (late) for (const listener of listeners) listener(null);
}
