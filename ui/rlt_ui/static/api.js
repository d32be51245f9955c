// The requests of the page, and its live connection. A report has the answers in its file.

const element = document.getElementById("records");

/** The answers in a report, by the name of the request. Null on the page of a server. */
export const records = element && JSON.parse(element.textContent);

export class ApiError extends Error {
  constructor(message, next) {
    super(message);
    this.next = next;
  }
}

/** JSON of a path below /api. Raises ApiError with what to do next. */
export async function get(name, parameters = {}) {
  if (records) return records[name];
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, value);
  }
  let response;
  try {
    response = await fetch(`api/${name}?${query}`, { credentials: "same-origin" });
  } catch {
    throw new ApiError("The server does not respond.", "If rlt ui has ended, start it again.");
  }
  if (response.status === 401) throw new ApiError(await response.text(), "Reload the page and log in again.");
  if (response.status === 403) throw new ApiError(await response.text(), "Open the URL of the terminal again.");
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(body.error ?? `HTTP ${response.status}`, body.next ?? "");
  return body;
}

const SILENCE_MS = 15000; // three times the interval of pings
const RETRY_MS = 2000;

/** Follow the versions of a run, or of the list. `onState` gets live, lost or failed with a text. Returns a function that ends it. */
export function follow(run, onChange, onState) {
  let source = null;
  let silence = null;
  let retry = null;
  let lost = false;
  let ended = false;

  function heard(state, text) {
    clearTimeout(silence);
    silence = setTimeout(reconnect, SILENCE_MS);
    onState(state, text);
  }

  function reconnect() {
    source?.close();
    clearTimeout(silence);
    clearTimeout(retry);
    if (ended) return;
    lost = true;
    onState("lost", "Connection lost. Reconnecting…");
    retry = setTimeout(connect, RETRY_MS);
  }

  function connect() {
    source = new EventSource(`api/events${run ? `?run=${encodeURIComponent(run)}` : ""}`);
    let first = !lost; // the page has just read the first version
    source.addEventListener("version", () => {
      heard("live", "Live");
      if (!first) onChange();
      first = false;
    });
    source.addEventListener("ping", () => heard("live", "Live"));
    source.addEventListener("failure", (event) => {
      first = false; // the page could not read it either
      heard("failed", JSON.parse(event.data));
    });
    source.onerror = reconnect;
    silence = setTimeout(reconnect, SILENCE_MS);
  }

  connect();
  return () => {
    ended = true;
    source.close();
    clearTimeout(silence);
    clearTimeout(retry);
  };
}

/** Follow a log. `onEvent` gets {text, isCut}, or {problem}. EventSource reconnects by itself. Returns a function that ends it. */
export function followLog(run, log, onEvent) {
  const source = new EventSource(`api/log?${new URLSearchParams({ run, log })}`);
  source.addEventListener("log", (event) => onEvent(JSON.parse(event.data)));
  source.addEventListener("failure", (event) => onEvent({ problem: JSON.parse(event.data) }));
  source.onerror = () => onEvent({ problem: source.readyState === EventSource.CLOSED ? "The log cannot be read. Reload the page." : "Connection lost. Reconnecting…" });
  return () => source.close();
}
