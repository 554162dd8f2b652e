// The token of this tab: kept in sessionStorage, never in an address.
const STORED = "tailrace.token";
let held = stored();
const listeners = new Set();

/** What GET /api/session said last; null before the first answer. */
export let session = null;

export function setSession(found) {
  session = found;
  for (const listener of listeners) listener();
}

export const token = () => held;

/** Whether actions can be performed once the token is entered. */
export const canAct = () => session?.token_configured !== false;

/** Keep a token for this tab; an empty one forgets it. */
export function setToken(value) {
  held = value;
  try {
    if (value) sessionStorage.setItem(STORED, value);
    else sessionStorage.removeItem(STORED);
  } catch {
    // Storage is disabled: the token lasts until the page is reloaded.
  }
}

/** Forget a token that the server does not accept. */
export function refuseToken() {
  setToken("");
  setSession({ ...session, token: "wrong" });
}

/** Call `listener` when the session changes. Returns a function that ends this. */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function stored() {
  try {
    return sessionStorage.getItem(STORED) ?? "";
  } catch {
    return "";
  }
}
