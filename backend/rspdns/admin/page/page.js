// The live page: the whole status whenever something happened, at least every two seconds; events as they come.

import { ask, follow, remember, Unauthorized } from "/stream.js";
import { duration, eventRow, fastPathCard, make, pdnsCard, poolCard, put, registrarCard } from "/view.js";

const EVERY_MS = 2000;
const SOON_MS = 120;
const EVENTS_SHOWN = 100;
const BARS = 40;

const byId = (id) => document.getElementById(id);
const events = new Map();
const states = new Map();
let paused = false;
let timer = null;
let asking = false;
let latest = 0;
let wanted = 0;
let cost = 0;

function show(status) {
  const homes = new Map(status.registrars.map((one) => [one.identifier, `registrar ${one.number}`]));
  const pools = status.zones.flatMap((zone) => zone.pools.map((pool) => [zone, pool]));
  put(byId("pool-list"), pools.length
    ? pools.map(([zone, pool]) => poolCard(pool, zone, homes, states))
    : [make("p", { class: "empty" }, "No pool is configured; `rspdns zone add` makes a zone.")]);
  const living = new Map();
  for (const one of new Map(pools.flatMap(([, pool]) => pool.members.map((member) => [
    `${pool.handles} ${member.identifier}`, member]))).values()) {
    living.set(one.home_registrar, (living.get(one.home_registrar) ?? 0) + 1);
  }
  const registrars = [...status.registrars].sort((one, other) => one.number - other.number);
  put(byId("registrars"), registrars.map((one) => registrarCard(one, living.get(one.identifier) ?? 0)));
  put(byId("pdns"), [...status.pdns.map(pdnsCard), ...(status.fastpath ? [fastPathCard(status.fastpath)] : [])]);
  put(byId("problems"), status.problems.map((problem) => make("p", {}, problem)));
  summary(status, pools.map(([, pool]) => pool));
  for (const event of status.events) take(event);
  latest = Math.max(latest, ...status.events.map((event) => event.number), 0);
  showEvents();
}

function summary(status, pools) {
  const members = pools.reduce((sum, pool) => sum + pool.members.length, 0);
  const missing = pools.reduce((sum, pool) => sum + pool.missing, 0);
  const settled = status.registrars.filter((one) => one.standing === "settled").length;
  const text = `${members} in${missing ? `, ${missing} missing` : ", none missing"} · ${settled} of ${status.registrars.length} registrars settled`;
  if (byId("summary").textContent !== text) byId("summary").textContent = text;
  byId("summary").dataset.tone = missing ? "warn" : "";
  const server = `${status.host} · version ${status.version}`;
  if (byId("server").textContent !== server) byId("server").textContent = server;
  document.title = `${members} in${missing ? `, ${missing} missing` : ""} · ${status.host} · rspdns`;
  byId("uptime").textContent = `up for ${duration(status.uptime_s)}`;
}

function take(event) {
  const known = events.get(event.number);
  if (known && known.at_s !== event.at_s) events.clear(); // numbers of another life of the backend
  events.set(event.number, event);
}

function showEvents() {
  if (paused) return;
  const sorted = [...events.values()].sort((one, other) => other.number - one.number);
  for (const event of sorted.splice(EVENTS_SHOWN)) events.delete(event.number);
  put(byId("events"), sorted.map(eventRow));
  const timed = sorted.filter((event) => event.converged_ms !== null).slice(0, BARS).reverse();
  byId("chart").hidden = !timed.length;
  if (!timed.length) return;
  const values = timed.map((event) => event.converged_ms);
  const middle = [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];
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

// The more a status costs, the more rarely it is asked for.
function soon(delay) {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(delay, 4 * cost));
}

async function refresh() {
  if (asking) return;
  asking = true;
  const began = performance.now();
  try {
    show(await (await ask("/v1/status")).json());
    cost = performance.now() - began;
    byId("token-form").hidden = true;
  } catch (error) {
    trouble(error);
  }
  asking = false;
  soon(wanted > latest ? SOON_MS : EVERY_MS);
}

function trouble(error) {
  if (error instanceof Unauthorized) {
    if (byId("token-form").hidden) byId("token").focus();
    byId("token-form").hidden = false;
    link("warn", "needs a token");
  } else {
    link("bad", "not connected");
    byId("summary").textContent = "The backend does not answer; what is shown is old.";
  }
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  remember(byId("token").value.trim());
  byId("token").value = "";
  refresh();
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
refresh();
