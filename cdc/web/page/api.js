// Requests to this server. The token travels in a header only.
import { jsonText, parseExact } from "./exact.js";
import { refuseToken, token } from "./session.js";

// Documents with values of rows. In others, a float such as 5.0 is only a number.
const EXACT = new Set(["/api/events", "/api/key", "/api/dead-letters"]);
const TIMEOUT_MS = 30_000;

/** A request that failed: `message`, and the server's `hint` and `command`, if any. `status` is 0 without an answer. */
export class RequestFailed extends Error {
  constructor(message, { status = 0, hint = "", command = "" } = {}) {
    super(message);
    this.status = status;
    this.hint = hint;
    this.command = command;
  }
}

/** Return an address below that of the page: the page of one pipeline of several is at /pipelines/NAME/. */
export const relative = (path) => path.replace(/^\//, "");

/** Return a document. `query`: parameters; those that are empty are left out. Raises RequestFailed, or AbortError. */
export async function read(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given).toString();
  return request(search ? `${path}?${search}` : path, {}, signal);
}

/** Perform an action. Returns its answer. */
export async function act(body) {
  return request("/actions", { method: "POST", body: jsonText(body) });
}

async function request(address, options, signal) {
  const headers = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const limit = AbortSignal.timeout(options.method === "POST" ? 2 * TIMEOUT_MS : TIMEOUT_MS);
  let answer;
  let text;
  try {
    const both = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    answer = await fetch(relative(address), { ...options, headers, signal: both, cache: "no-store", credentials: "omit" });
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (limit.aborted) throw new RequestFailed("the server did not answer in time");
    throw new RequestFailed("the server does not answer", { hint: "check that cdc run is running" });
  }
  if (answer.status === 401 && headers.Authorization && options.method === undefined) {
    // Changed on the server since this tab got it: what needs no token is still shown.
    refuseToken();
    return request(address, options, signal);
  }
  return parsed(answer, text, EXACT.has(address.split("?")[0]) ? parseExact : JSON.parse);
}

function parsed(answer, text, parse) {
  let found = null;
  try {
    found = parse(text);
  } catch {
    // Not JSON: a proxy's page, for example.
  }
  if (answer.ok && found !== null) return found;
  const said = typeof found?.error === "string" ? found.error : found?.error?.message;
  const message = said || (answer.ok ? "the server's answer is not JSON" : `the server answered ${answer.status}`);
  throw new RequestFailed(message, { status: answer.status, hint: found?.hint ?? "", command: found?.command ?? "" });
}
