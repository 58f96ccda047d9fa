// From the API's values to elements. Text is set as text only: nothing a member says becomes markup.

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Puts `elements` under `parent` by changing what differs, so that focus, selection and readers stay where they are.
export function put(parent, elements) {
  elements.forEach((element, place) => {
    const old = parent.childNodes[place];
    if (!old) parent.append(element);
    else become(old, element);
  });
  while (parent.childNodes.length > elements.length) parent.lastChild.remove();
}

function become(old, wanted) {
  if (old.isEqualNode(wanted)) return;
  if (old.nodeName !== wanted.nodeName || old.dataset?.member !== wanted.dataset?.member) {
    old.replaceWith(wanted);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    old.nodeValue = wanted.nodeValue;
    return;
  }
  const isKept = (name) => name === "open"; // the reader opens and closes it
  for (const name of old.getAttributeNames()) if (!wanted.hasAttribute(name) && !isKept(name)) old.removeAttribute(name);
  for (const name of wanted.getAttributeNames()) {
    if (isKept(name)) continue;
    const value = wanted.getAttribute(name);
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = wanted.style.cssText; // the attribute itself is against our policy
    else old.setAttribute(name, value);
  }
  put(old, [...wanted.childNodes]);
}

// As `daemon_kit.durations` writes them.
export function duration(seconds) {
  if (seconds === null) return "";
  const whole = Math.floor(Math.max(0, seconds));
  if (whole < 10) return `${String(Math.floor(Math.max(0, seconds) * 10) / 10)} s`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

export function tag(tone, text) { return make("span", { class: "tag", "data-tone": tone }, text); }

export const endpoint = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

function cell(label, className, ...children) {
  return make("td", { "data-label": label, class: className || null }, ...children);
}

function bar(share, tone, label) {
  const inner = make("i");
  inner.style.width = `${Math.round(Math.min(1, share) * 100)}%`;
  return make("span", { class: "bar", "data-tone": tone, role: "img", "aria-label": label }, inner);
}

function called(member, where) {
  const link = member.address || member.addresses ? make("a", { href: `#server=${encodeURIComponent(placeOf(member))}` }, where) : where;
  return member.name ? [make("span", { class: "name" }, member.name), link] : [link];
}

// The address and port that stand for a server.
export const placeOf = (member) => endpoint(member.addresses ? member.addresses[0] : member.address, member.port);

const SPANS = { up: "up", down: "down", planned: "out on purpose", unknown: "no backend looked" };

// The time of a history page as a line of spans; null while nothing is known.
export function timeLine(report, page) {
  if (!report) return null;
  const length = page.until_s - page.since_s;
  const first = report.spans[0]?.from_s ?? page.until_s;
  const before = { state: "unknown", from_s: page.since_s, until_s: first, words: null };
  const spans = [before, ...report.spans].map((span) => {
    const inner = make("i", { "data-state": span.state,
      title: `${SPANS[span.state]} ${duration(span.until_s - span.from_s)}${span.words ? `: ${span.words}` : ""}` });
    inner.style.width = `${((span.until_s - span.from_s) / length) * 100}%`;
    return inner;
  });
  const known = report.availability === null ? "nothing known" : `${(report.availability * 100).toFixed(3)} % available`;
  const hours = Math.round(length / 3600);
  return make("span", { class: "time-line", role: "img",
    "aria-label": `last ${hours} h: ${known}, ${report.outages} outage${report.outages === 1 ? "" : "s"}` }, ...spans);
}

function memberRow(member, total, ranks, homes, flash, line, override) {
  const load = member.load;
  const share = total ? (member.weight ?? 0) / total : 0;
  const { overloadedAt, relievedAt } = document.documentElement.dataset;
  const tone = load >= Number(overloadedAt) ? "bad" : load >= Number(relievedAt) ? "warn" : null;
  const percent = load === null ? "" : `${Math.round(load * 100)} %`;
  const rank = ranks.indexOf(member.priority);
  const weight = member.weight === null ? "not shown" : String(member.weight);
  const reserve = rank > 0 && member.weight !== null
    ? make("span", { class: "note", title: `SRV priority ${member.priority}: used when none of a lower number answers` },
      ` reserve ${rank}`) : null;
  return make(
    "tr", { "data-member": member.identifier, class: flash ? "flash" : null },
    cell("", "mono", ...called(member, member.addresses.map((address) => endpoint(address, member.port)).join(", "))),
    cell("State", "", ...stateOf(member, override), ` ${duration(member.since_s)}`, line),
    cell("Weight", "number", weight, reserve,
      member.weight === null ? null : bar(share, null, `${Math.round(share * 100)} % of the clients sent to its SRV priority`)),
    cell("Load", "number", percent, load === null ? null : bar(load, tone, `load ${percent}`)),
    cell("Home", "", homes.get(homeOf(member.handlespace, member.home_registrar)) ?? "unknown registrar"),
    cell("PE", "mono", member.identifier),
  );
}

// The tags of a server that is in, or out.
export function stateOf(member, override) {
  const held = override === undefined || override === null ? [] : [tag("warn", `override ${override}`)];
  if (member.addresses) {
    const share = member.share === null ? [] : [tag("warn", `share ${+(member.share * 100).toFixed(1)} %`)];
    return [member.stale ? tag("warn", "in, from memory") : tag("good", "in"), ...share, ...held];
  }
  const left = member.planned_s === null || member.planned_s === undefined ? "" : `, ${duration(member.planned_s)} left`;
  if (member.planned) return [tag("quiet", (member.cause === "drained" ? "drained" : "overridden") + left), ...held];
  return [member.missing ? tag("warn", "missing") : tag("bad", "out"), ...held];
}

// A server that was never seen has no identifier.
const outKey = (member) => member.identifier ?? `${member.address} ${member.port}`;

function outRow(member, flash, line, override) {
  return make(
    "tr", { "data-member": outKey(member), class: flash ? "out flash" : "out" },
    cell("", "mono", ...called(member, member.address ? endpoint(member.address, member.port) : "unknown address")),
    make("td", { colspan: 4, class: "wide" }, ...stateOf(member, override), ` ${duration(member.since_s)}`, line,
      make("span", { class: member.planned ? "note" : member.missing ? "reason missing" : "reason" }, member.reason),
      member.look_at ? make("span", { class: "look" }, `Look at: ${member.look_at}`) : null),
    cell("PE", "mono", member.identifier ?? ""),
  );
}

function poolState(pool) {
  if (!pool.known) return tag("bad", "not known yet: SERVFAIL");
  const lost = pool.handlespaces.filter((part) => part.stale_s !== null);
  if (lost.length && lost.length < pool.handlespaces.length) {
    return tag("warn", lost.map((part) => `${part.name} from memory for ${duration(part.stale_s)}`).join(", "));
  }
  if (pool.stale_s !== null) return tag("warn", `from memory for ${duration(pool.stale_s)}`);
  if (!pool.members_in) return tag("bad", pool.expected ? `0 of ${pool.expected} in` : "nobody is in");
  const expected = pool.expected - pool.missing;
  const more = pool.members_in - expected;
  if (!pool.missing && more <= 0) return tag("good", `${pool.members_in} in`);
  const words = `${expected} of ${pool.expected} in${more > 0 ? `, and ${more} not expected` : ""}`;
  return tag(pool.missing ? "warn" : "good", words);
}

// A site of the pool, and its part in the answers.
function siteTag(site) {
  const part = site.rank ? `rank ${site.rank}` : "gets the calls";
  const load = site.load === null ? "" : `, load ${Math.round(site.load * 100)} %`;
  const back = site.back_s === null ? "" : `, counts again in ${duration(site.back_s)}`;
  return tag(site.enough ? (site.spilling ? "warn" : site.rank ? "quiet" : "good") : "bad",
    `${site.name}: ${part}, ${site.members} in${load}${site.enough ? "" : ", not enough"}${site.spilling ? ", spills" : ""}${back}`);
}

// One answer of DNS, and the command that asks for it.
function answerRow(answer) {
  const lines = answer.problem ? [make("p", { class: "reason" }, answer.problem)]
    : answer.records.map((record) => make("p", { class: "mono" }, record));
  return make("div", { class: "answer" },
    make("p", {}, make("span", { class: "mono" }, `${answer.name} ${answer.type}`),
      make("span", { class: "note" }, answer.ttl === null ? "" : ` TTL ${answer.ttl} s`)),
    ...lines,
    make("p", { class: "row" }, make("code", {}, answer.dig),
      make("button", { type: "button", class: "small", "data-copy": answer.dig, "aria-label": `Copy: ${answer.dig}` }, "Copy")));
}

// `states` remembers who was in, by owner and member, so that a row that changed is shown so. `history` is a
// page of /v1/history, undefined while there is none.
export function poolCard(pool, homes, states, history) {
  const changed = (member, state) => {
    const key = `${pool.owner} ${outKey(member)}`;
    const before = states.get(key);
    states.set(key, { state, at: before?.state === state ? before.at : before ? Date.now() : 0 });
    const now = states.get(key);
    return before !== undefined && now.state === state && Date.now() - now.at < 2000;
  };
  const reports = new Map((history?.servers ?? []).map((report) => [`${report.handle} ${report.server}`, report]));
  const line = (member) => timeLine(reports.get(`${member.handle} ${placeOf(member)}`), history);
  const ranks = Object.keys(pool.weights).map(Number).sort((left, right) => left - right);
  const rows = [
    ...pool.members.map((member) => memberRow(member, pool.weights[member.priority], ranks, homes,
      changed(member, "in"), line(member), pool.overridden[placeOf(member)])),
    ...pool.out.map((member) => outRow(member, changed(member, "out"), member.address ? line(member) : null,
      member.address ? pool.overridden[placeOf(member)] : null)),
  ];
  const heads = ["Server", "State, last 24 h", "Weight", "Load", "Home registrar", "PE identifier"];
  const about = `pool ${pool.handles.join(", ")} · zone ${pool.zone} · serial ${pool.serial ?? "none yet"} · ` +
    `when empty: ${pool.when_empty}`;
  const more = pool.members_in - pool.members.length + pool.servers_out - pool.out.length;
  return make(
    "article", { class: "pool", "data-owner": pool.owner },
    make("header", {}, make("h3", { class: "mono" }, pool.owner), poolState(pool),
      pool.planned ? tag("quiet", `${pool.planned} out on purpose`) : null, make("p", { class: "note" }, about)),
    pool.answered_instead ? make("p", { class: "notice" }, pool.answered_instead) : null,
    pool.sites.length ? make("p", { class: "sites" }, ...pool.sites.flatMap((site) => [siteTag(site), " "])) : null,
    make("details", { open: "" }, make("summary", {}, "DNS says"), ...pool.answers.map(answerRow)),
    rows.length
      ? make("table", {}, make("caption", {}, `Members of ${pool.owner}`),
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...rows))
      : null,
    more ? make("p", { class: "note more" }, `${more} more servers: `,
      make("a", { href: `#filter=${encodeURIComponent(pool.owner)}` }, "this pool alone")) : null,
  );
}

// The state of a server in one of its pools, for its own page.
export function serverCard(place, history) {
  const member = place.member ?? place.out;
  const report = history?.servers.find((found) => found.handle === member.handle);
  const listed = place.listed_by.length ? `listed by registrar ${member.handlespace ? `${member.handlespace} ` : ""}${place.listed_by.join(", ")}` : "no registrar lists it";
  const facts = [
    `pool ${member.handle} · PE ${member.identifier ?? "unknown"} · ${listed}`,
    place.member ? `weight ${member.weight ?? "not shown"} · priority ${member.priority ?? "none"} · load `
      + (member.load === null ? "not told" : `${Math.round(member.load * 100)} %`) : null,
    place.verify ? `this name server probes it: ${place.verify}` : "this name server does not probe it all the time",
  ];
  const sum = report ? `last 24 h: ${report.availability === null ? "nothing known"
    : `${(report.availability * 100).toFixed(3)} % available`} · ${report.outages} outages · down ${duration(report.down_s)}`
    + ` · on purpose ${duration(report.planned_s)} · longest outage ${duration(report.longest_outage_s)}` : "";
  return make("article", { class: "pool place", "data-owner": place.owner },
    make("header", {}, make("h3", { class: "mono" }, make("a", { href: `#filter=${encodeURIComponent(place.owner)}` }, place.owner)),
      ...stateOf(member, place.override), make("span", { class: "note" }, `for ${duration(member.since_s)}`)),
    make("div", { class: "facts" },
      place.out ? make("p", { class: member.planned ? "" : "reason" }, member.reason) : null,
      place.out && member.look_at ? make("p", { class: "look" }, `Look at: ${member.look_at}`) : null,
      ...facts.filter((fact) => fact !== null).map((fact) => make("p", { class: "note" }, fact)),
      timeLine(report, history), sum ? make("p", { class: "note" }, sum) : null));
}

export function overrideCard(override) {
  const share = override.share === null ? "" : ` ${+(override.share * 100).toFixed(1)} %`;
  const now = Date.now() / 1000;
  const begins = override.starts_at_s > now ? `begins in ${duration(override.starts_at_s - now)}, ` : "";
  const ends = override.ends_at_s === null ? "until it is cleared" : `ends in ${duration(override.ends_at_s - now)}`;
  return make("li", { "data-override": override.number },
    make("div", { class: "row spread" }, make("h3", {}, `${override.number}: ${override.action}${share} ${override.servers}`),
      make("button", { type: "button", class: "small", "data-clear": override.number, "data-shared": override.id ?? "" }, "Clear")),
    make("p", {}, override.reason),
    make("p", { class: "note" }, `${begins}${ends} · by ${override.by}${override.pool ? ` · of ${override.pool}` : ""}`
      + (override.id ? " · everywhere" : "")),
    override.problem ? make("p", { class: "reason" }, `does not hold: ${override.problem}`) : null);
}

export function shareLines(pools) {
  const percent = (share) => (share === null ? "out" : `${(share * 100).toFixed(1)} %`);
  const lines = Object.entries(pools).flatMap(([owner, shares]) => [make("p", { class: "mono" }, owner),
    ...shares.map((share) => make("p", { class: "note mono" }, `${share.server}: ${percent(share.before)} → ${percent(share.after)}`))]);
  return lines.length ? lines : [make("p", { class: "note" }, "no share changes now")];
}

const STANDINGS = { settled: "good", starting: "warn", waking: "warn", silent: "bad", down: "bad" };

// Identifiers of registrars are unique within a handlespace.
export const homeOf = (handlespace, identifier) => `${handlespace ?? ""} ${identifier}`;

export const registrarName = (one) => (one.handlespace ? `${one.handlespace} ${one.number}` : `${one.number}`);

export function registrarCard(one) {
  const trip = one.round_trip_ms === null ? "" : ` · ${one.round_trip_ms.toFixed(1)} ms`;
  return make(
    "li", { "data-registrar": registrarName(one) },
    make("div", { class: "row spread" }, make("h3", {}, `Registrar ${registrarName(one)}`), tag(STANDINGS[one.standing], one.standing)),
    make("p", { class: "mono" }, one.address),
    make("p", { class: "note" }, `${one.identifier ?? "no identifier yet"}${trip}`),
    make("p", { class: "note" }, one.follow === "enrp" ? "pushes every change" : "is asked for changes"),
    one.follow_problem ? make("p", { class: "reason" }, `pushes nothing: ${one.follow_problem}`) : null,
    make("p", { class: "note" }, one.why),
  );
}

export function pdnsCard(one) {
  return make(
    "li", {},
    make("div", { class: "row spread" }, make("h3", { class: "mono" }, one.control.split("/").pop()),
      one.problem ? tag("bad", "fails") : tag("good", "works")),
    make("p", { class: "note mono" }, one.control),
    make("p", { class: "note" }, `${one.names} names purged in ${one.commands} commands, ${one.waiting} waiting`),
    one.problem ? make("p", { class: "reason" }, one.problem) : null,
  );
}

// The cards of all that are told of changes beside PowerDNS.
export function toldCards(status) {
  return [
    ...status.resolvers.map((resolver) => toldCard(`Resolver ${resolver.name}`, `${resolver.type}, ${resolver.address}`,
      `told ${resolver.flushes} times, ${resolver.names} names; ${resolver.waiting} waiting`, "told", resolver.problem)),
    ...status.secondaries.map((secondary) => toldCard(`Secondary ${secondary.name}`, secondary.address,
      `${secondary.right} of ${secondary.of_zones} zones right, ${secondary.notifies} NOTIFYs, ${secondary.repeats} repeated`,
      "follows", ...secondary.zones.filter((zone) => zone.problem).map((zone) => `${zone.zone}: ${zone.problem}`))),
    ...status.publications.map((publication) => toldCard(`Publication ${publication.name}`,
      `${publication.zone} at ${publication.server}`,
      `${publication.rrsets} RRsets there, ${publication.waiting} waiting, ${publication.edits} edited by others`,
      publication.state, publication.problem, publication.silent)),
  ];
}

function toldCard(title, address, note, state, ...problems) {
  const reasons = problems.filter((problem) => problem);
  return make(
    "li", {},
    make("div", { class: "row spread" }, make("h3", {}, title),
      reasons.length ? tag("bad", state === "silent" ? state : "fails") : tag(state === "comparing" ? "quiet" : "good", state)),
    make("p", { class: "note mono" }, address),
    make("p", { class: "note" }, note),
    ...reasons.map((reason) => make("p", { class: "reason" }, reason)),
  );
}

export function fastPathCard(one) {
  const answered = one.decisions.answered ?? 0;
  const limited = (one.decisions.limited_tc ?? 0) + (one.decisions.limited_dropped ?? 0);
  const failed = (one.decisions.not_grown ?? 0) + (one.decisions.not_written ?? 0);
  const passed = Object.values(one.decisions).reduce((sum, count) => sum + count, 0) - answered - limited - failed;
  const others = ["answered", "limited_tc", "limited_dropped", "not_grown", "not_written"];
  const reasons = Object.entries(one.decisions).filter(([reason, count]) => count && !others.includes(reason));
  const away = one.interfaces.filter((interface_) => !interface_.attached);
  return make(
    "li", {},
    make("div", { class: "row spread" }, make("h3", {}, "Fast path"),
      one.problem || away.length ? tag("bad", "fails") : tag("good", "works")),
    make("p", { class: "note mono" }, one.socket),
    make("p", { class: "note" }, `${one.names} names; ${answered} questions answered by the kernel, ${passed} passed on`),
    reasons.length ? make("p", { class: "note" },
      `passed on: ${reasons.map(([reason, count]) => `${reason} ${count}`).join(", ")}`) : null,
    limited ? make("p", { class: "note" }, `${limited} questions above the limit`) : null,
    failed ? make("p", { class: "reason" }, `${failed} answers could not be written into their packet`) : null,
    ...one.asked.slice(0, 5).map((name) => make("p", { class: "note mono" },
      `${name.name} ${name.type}: ${name.answered} answered, ${name.passed} passed on`
      + (name.failed ? `, ${name.failed} failed` : ""))),
    one.problem ? make("p", { class: "reason" }, `PowerDNS answers everything: ${one.problem}`) : null,
    ...one.interfaces.filter((interface_) => interface_.problem).map((interface_) => make("p", { class: "reason" },
      `${interface_.attached ? "at" : "not at"} ${interface_.name}: ${interface_.problem}`)),
  );
}

const KINDS = { joined: "good", left: "bad", moved: "warn", examined: "quiet", refused: "bad", questioned: "warn", misplaced: "bad" };

export function eventRow(event) {
  const at = new Date(event.at_s * 1000);
  const clock = at.toLocaleTimeString("en-GB") + `.${String(at.getMilliseconds()).padStart(3, "0")}`;
  const server = event.name && event.address ? `${event.name} (${event.address})`
    : event.address ?? event.identifier;
  const who = server ? `${server} of ${event.handle}: ` : event.handle ? `${event.handle}: ` : "";
  const took = event.converged_ms === null ? "" : `${event.converged_ms.toFixed(1)} ms`;
  return make(
    "li", { "data-event": event.number },
    make("time", { datetime: at.toISOString() }, clock),
    tag(KINDS[event.kind] ?? "quiet", event.kind),
    make("span", { class: "what" }, who + event.words),
    make("span", { class: "took", "data-tone": took ? "good" : null, title: took ? "until the old answers were gone" : null },
      took ? `→ ${took}` : ""),
  );
}
