// Asking the API: one answer, or events as they come. Not EventSource, which can't send a bearer token.

const TOKEN = "rspdns-token";
const AGAIN_MS = 1000;

export class Unauthorized extends Error {
  constructor(wasRefused) {
    super();
    this.wasRefused = wasRefused; // a token was given, and it is no right one
  }
}

export function remember(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export async function ask(path, more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...more.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...more, headers, cache: "no-store" });
  if (answer.status === 401) {
    if (token === sessionStorage.getItem(TOKEN)) remember(null); // it would be counted as wrong again and again
    throw new Unauthorized(Boolean(token));
  }
  if (!answer.ok) throw new Error(await problem(answer) ?? `${path}: ${answer.status}`);
  return answer;
}

async function problem(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return null;
  }
}

export async function read(path) { return (await ask(path)).json(); }

export async function write(method, path, body) {
  const more = body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  return (await ask(path, { method, ...more })).json();
}

// Calls onEvent(event) for each event, for ever; onLink(true or false) when the stream opens and breaks.
export async function follow(onEvent, onLink) {
  let last = null;
  for (;;) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": String(last) };
      const answer = await ask("/v1/events/stream", { headers });
      onLink(true);
      for await (const block of blocks(answer.body)) {
        const data = block.split("\n").find((line) => line.startsWith("data: "));
        if (data) {
          const event = JSON.parse(data.slice(6));
          last = event.number;
          onEvent(event);
        }
      }
    } catch (error) {
      onLink(false, error);
    }
    onLink(false);
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const found = text.split("\n\n");
    text = found.pop();
    yield* found;
  }
}
