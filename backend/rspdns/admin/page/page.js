// The live page: the answers of DNS page by page, or one server; whenever something happened, at least every two
// seconds. Events come as they happen. The address holds what is shown: #filter=...&offset=..., or #server=....

import { follow, read, remember, Unauthorized, write } from "/stream.js";
import {
  duration, eventRow, fastPathCard, homeOf, make, overrideCard, pdnsCard, poolCard, put, registrarCard, registrarName,
  serverCard, shareLines, toldCards,
} from "/view.js";

const EVERY_MS = 2000;
const SOON_MS = 120;
const HISTORY_MS = 60000;
const HISTORIES_AT_ONCE = 3;
const FILTER_MS = 250;
const EVENTS_SHOWN = 100;
const BARS = 40;
const POOLS = 20;
const ALL_SERVERS = 1000;

const byId = (id) => document.getElementById(id);
const events = new Map();
const states = new Map();
const histories = new Map(); // by the question: the page of /v1/history, and when it was asked for
let paused = false;
let timer = null;
let asking = false;
let latest = 0;
let wanted = 0;
let cost = 0;

const place = () => new URLSearchParams(location.hash.slice(1));

function show(status) {
  const registrars = [...status.registrars].sort((left, right) =>
    (left.handlespace ?? "").localeCompare(right.handlespace ?? "") || left.number - right.number);
  put(byId("registrars"), registrars.map(registrarCard));
  put(byId("pdns"), [...status.pdns.map(pdnsCard), ...(status.fastpath ? [fastPathCard(status.fastpath)] : [])]);
  const peers = status.peers.flatMap((peer) => [
    ...(peer.problem ? [`peer ${peer.name} can't be asked: ${peer.problem}`] : []),
    ...peer.differences.map((difference) => `peer ${peer.name} has other overrides: ${difference}`)]);
  const resolvers = status.resolvers.filter((resolver) => resolver.problem).map((resolver) =>
    `resolver ${resolver.name} can't be told of changes: ${resolver.problem}`);
  const secondaries = status.secondaries.flatMap((secondary) => secondary.zones.filter((zone) => zone.problem).map((zone) =>
    `secondary ${secondary.name}: ${zone.zone}: ${zone.problem}`));
  put(byId("problems"), [...status.problems, ...resolvers, ...secondaries, ...peers].map((problem) => make("p", {}, problem)));
  const told = toldCards(status);
  byId("told").hidden = !told.length;
  put(byId("told-list"), told);
  byId("overrides").hidden = !status.overrides.length;
  put(byId("override-list"), status.overrides.map(overrideCard));
  byId("everywhere-label").hidden = !status.peers.length;
  const server = `${status.host} · version ${status.version}`;
  if (byId("server").textContent !== server) byId("server").textContent = server;
  byId("uptime").textContent = `up for ${duration(status.uptime_s)}`;
  for (const event of status.events) take(event);
  latest = Math.max(latest, ...status.events.map((event) => event.number), 0);
  showEvents();
  return new Map(status.registrars.map((registrar) =>
    [homeOf(registrar.handlespace, registrar.identifier), `registrar ${registrarName(registrar)}`]));
}

function showAnswers(status, page, homes) {
  put(byId("pool-list"), page.pools.length
    ? page.pools.map((pool) => poolCard(pool, homes, states, histories.get(historyOf(pool))?.page))
    : [make("p", { class: "empty" }, page.pools_in_all
      ? "No pool is like that." : "No pool is configured; `rspdns zone add` makes a zone.")]);
  const last = page.offset + page.pools.length;
  byId("matching").textContent = page.matching > page.pools.length
    ? `${page.offset + 1} to ${last} of ${page.matching} pools` : `${page.matching} of ${page.pools_in_all} pools`;
  byId("before").hidden = !page.offset;
  byId("next").hidden = last >= page.matching;
  summary(status, page);
}

function summary(status, page) {
  const { members_in: members, missing, planned } = page;
  const settled = status.registrars.filter((registrar) => registrar.standing === "settled").length;
  const text = `${members} in, ${missing || "none"} missing${planned ? `, ${planned} out on purpose` : ""} · ` +
    `${settled} of ${status.registrars.length} registrars settled`;
  if (byId("summary").textContent !== text) byId("summary").textContent = text;
  byId("summary").dataset.tone = missing ? "warn" : "";
  document.title = `${members} in${missing ? `, ${missing} missing` : ""} · ${status.host} · rspdns`;
}

const historyOf = (pool) => `pool=${encodeURIComponent(pool.owner)}`;

// Asks for the histories of what is shown, a few at a time.
async function lookBack(questions) {
  const now = Date.now();
  const due = questions.filter((question) => !(now - histories.get(question)?.at < HISTORY_MS));
  for (const question of due.slice(0, HISTORIES_AT_ONCE)) {
    const before = histories.get(question)?.page;
    histories.set(question, { at: now, page: before });
    try {
      histories.set(question, { at: now, page: await read(`/v1/history?${question}&hours=24`) });
    } catch (error) {
      if (error instanceof Unauthorized) throw error; // without a journal there are no lines
    }
  }
  for (const question of histories.keys()) if (!questions.includes(question)) histories.delete(question);
}

async function showPools(status, homes) {
  const filter = place().get("filter") ?? "";
  const query = new URLSearchParams({ filter, offset: place().get("offset") ?? "0", pools: String(POOLS) });
  let page = await read(`/v1/answers?${query}`);
  if (filter && page.matching === 1) {
    query.set("servers", String(ALL_SERVERS));
    page = await read(`/v1/answers?${query}`);
  }
  showAnswers(status, page, homes);
  await lookBack(page.pools.map(historyOf));
}

async function showServer(status, server) {
  const question = `server=${encodeURIComponent(server)}`;
  await lookBack([question]);
  let known = { name: null, pools: [], events: [] };
  try {
    known = await read(`/v1/servers/${encodeURIComponent(server)}`);
  } catch (error) {
    if (error instanceof Unauthorized) throw error;
    put(byId("server-state"), [make("p", { class: "notice" }, error.message)]);
    return;
  }
  const settled = status.registrars.filter((registrar) => registrar.standing === "settled").length;
  byId("summary").textContent = `${settled} of ${status.registrars.length} registrars settled`;
  byId("summary").dataset.tone = "";
  const title = known.name ? `${known.name} (${server})` : server;
  if (byId("server-title").textContent !== title) byId("server-title").textContent = title;
  document.title = `${title} · rspdns`;
  put(byId("server-state"), known.pools.map((pool) => serverCard(pool, histories.get(question)?.page)));
}

function take(event) {
  const known = events.get(event.number);
  if (known && known.at_s !== event.at_s) events.clear(); // numbers of another life of the backend
  events.set(event.number, event);
}

function showEvents() {
  if (paused) return;
  const server = place().get("server");
  const sorted = [...events.values()].sort((left, right) => right.number - left.number);
  for (const event of sorted.splice(EVENTS_SHOWN)) events.delete(event.number);
  put(byId("events"), sorted.filter((event) => !server || event.address === server).map(eventRow));
  const timed = sorted.filter((event) => event.converged_ms !== null).slice(0, BARS).reverse();
  byId("chart").hidden = !timed.length || Boolean(server);
  if (!timed.length) return;
  const values = timed.map((event) => event.converged_ms);
  const middle = [...values].sort((left, right) => left - right)[Math.floor(values.length / 2)];
  const most = Math.max(...values);
  byId("scale-top").textContent = `${most.toFixed(1)} ms`;
  byId("chart-text").textContent =
    `Time to reach every PowerDNS, last ${values.length} changes of answers: median ${middle.toFixed(1)} ms, slowest ${most.toFixed(1)} ms`;
  put(byId("bars"), values.map((value) => {
    const inner = make("i", { title: `${value.toFixed(1)} ms` });
    inner.style.height = `${Math.max(4, (value / most) * 100)}%`;
    return inner;
  }));
}

function link(tone, text) {
  byId("link").dataset.tone = tone;
  byId("link").textContent = text;
}

// The more a page costs, the more rarely it is asked for.
function soon(delay) {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(delay, 4 * cost));
}

async function refresh() {
  if (asking) return;
  asking = true;
  const began = performance.now();
  const at = location.hash;
  try {
    const status = await read("/v1/status?zones=false");
    const homes = show(status);
    const server = place().get("server");
    byId("server-page").hidden = !server;
    byId("pools").hidden = Boolean(server);
    await (server ? showServer(status, server) : showPools(status, homes));
    cost = performance.now() - began;
    byId("token-form").hidden = true;
  } catch (error) {
    trouble(error);
  }
  asking = false;
  soon(location.hash !== at ? 0 : wanted > latest ? SOON_MS : EVERY_MS);
}

function trouble(error) {
  if (error instanceof Unauthorized) {
    needToken(error);
    link("warn", "needs a token");
  } else {
    link("bad", "not connected");
    byId("summary").textContent = "The backend does not answer; what is shown is old.";
  }
}

function needToken(error) {
  if (error.wasRefused) byId("token-problem").textContent = "This token was refused.";
  if (byId("token-form").hidden) {
    byId("token-form").hidden = false;
    byId("token").focus();
  }
}

// Changes something. `result` shows elements about it; a token is asked for where one is needed.
async function change(result, work) {
  result([make("p", { class: "note" }, "…")]);
  try {
    await work();
  } catch (error) {
    if (error instanceof Unauthorized) needToken(error);
    const words = error instanceof Unauthorized ? "This needs a token of admin.write_tokens." : error.message;
    result([make("p", { class: "reason" }, words)]);
  }
  soon(0);
}

const actionResult = (elements) => put(byId("action-result"), elements);

function peerLines(peers) {
  return peers.map((peer) => make("p", { class: peer.problem ? "reason" : "note" },
    peer.problem ? `${peer.peer}: not done: ${peer.problem}` : `${peer.peer}: done`));
}

function override(isDry) {
  if (!byId("action").reportValidity()) return;
  const action = byId("wanted").value;
  const wish = { action, servers: place().get("server"), reason: byId("reason").value, dry_run: isDry };
  if (action === "share") wish.share = Number(byId("share").value) / 100;
  if (byId("for").value) wish.for_s = Number(byId("for").value);
  if (byId("everywhere").checked) wish.everywhere = true;
  change(actionResult, async () => {
    const done = await write("POST", "/v1/overrides", wish);
    const words = isDry ? "It would be so; nothing was changed." : `Override ${done.override.number} is set.`;
    actionResult([make("p", {}, words), ...shareLines(done.pools), ...peerLines(done.peers)]);
  });
}

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not by https, or not allowed: selected, it can be copied by hand
    getSelection().selectAllChildren(button.previousElementSibling);
    return;
  }
  button.textContent = "Copied";
}

function clear(button) {
  const everywhere = button.dataset.shared ? "?everywhere=true" : "";
  change((elements) => put(byId("problems"), elements), async () => {
    const done = await write("DELETE", `/v1/overrides/${button.dataset.clear}${everywhere}`);
    put(byId("problems"), peerLines(done.peers.filter((peer) => peer.problem)));
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy) copy(button);
  else if (button?.dataset.clear) clear(button);
});

function go(changes) {
  const next = place();
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, String(value));
    else next.delete(key);
  }
  history.replaceState(null, "", `#${next}`);
  soon(0);
}

let filtering = null;
byId("filter").addEventListener("input", () => {
  clearTimeout(filtering);
  filtering = setTimeout(() => go({ filter: byId("filter").value.trim(), offset: 0 }), FILTER_MS);
});
byId("search").addEventListener("submit", (event) => event.preventDefault());
byId("before").addEventListener("click", () => go({ offset: Math.max(0, Number(place().get("offset")) - POOLS) }));
byId("next").addEventListener("click", () => go({ offset: Number(place().get("offset")) + POOLS }));

function arrived() {
  byId("filter").value = place().get("filter") ?? "";
  byId("server-page").hidden = !place().get("server");
  byId("pools").hidden = Boolean(place().get("server"));
  actionResult([]);
  if (place().get("server")) {
    byId("server-title").textContent = place().get("server");
    put(byId("server-state"), []);
    byId("server-title").focus();
  }
  showEvents();
  cost = 0;
  soon(0);
}
addEventListener("hashchange", arrived);

byId("wanted").addEventListener("change", () => {
  byId("share-label").hidden = byId("wanted").value !== "share";
});
byId("preview").addEventListener("click", () => override(true));
byId("action").addEventListener("submit", (event) => {
  event.preventDefault();
  override(false);
});

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember(byId("token").value.trim());
  byId("token").value = "";
  byId("token-problem").textContent = "";
  byId("token-form").hidden = true;
  soon(0);
});

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  showEvents();
});

follow((event) => {
  take(event);
  showEvents();
  if (event.number > wanted) wanted = event.number;
  soon(SOON_MS);
}, (up, error) => {
  if (up) {
    wanted = latest = 0;
    link("good", "live");
    soon(0);
  } else if (error) trouble(error);
});
arrived();
