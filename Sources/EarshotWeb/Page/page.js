"use strict";
// The live page: it receives a state each second, keeps five minutes of samples, and draws them.

const element = id => document.getElementById(id);
const kept = 300;
const samples = [];
let previous = null;
let pids = null;

function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// MARK: numbers

const sum = numbers => numbers.reduce((total, number) => total + number, 0);
const failed = requests => sum(Object.values(requests.failed));

function short(number) {
  if (!Number.isFinite(number)) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(number) >= size) return (number / (unit === "k" ? 1e3 : size)).toFixed(1) + " " + unit;
  }
  return number % 1 === 0 ? String(number) : number.toFixed(number < 10 ? 2 : 1);
}

function bytes(number) {
  if (!Number.isFinite(number)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (number >= 1024 && index < units.length - 1) { number /= 1024; index++; }
  return (index === 0 ? Math.round(number) : number.toFixed(1)) + " " + units[index];
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  return seconds < 1 ? short(seconds * 1000) + " ms" : short(seconds) + " s";
}

const counted = (number, noun) => number + " " + noun + (number === 1 ? "" : "s");

const percent = number => Number.isFinite(number) ? (number * 100).toFixed(1) + " %" : "–";

// Upper bound of the bucket of a quantile, of the observations between two samples.
function quantile(old, now, bounds, part) {
  const counts = now.map((count, index) => count - old[index]);
  const total = sum(counts);
  if (total <= 0) return NaN;
  let seen = 0;
  for (let index = 0; index < counts.length; index++) {
    seen += counts[index];
    if (seen >= total * part) return (bounds[index] ?? bounds[bounds.length - 1] * 2) / 1e6;
  }
  return NaN;
}

// MARK: samples

function sample(status, seconds) {
  return {
    seconds,
    answered: status.requests.answered, failed: failed(status.requests), submitted: status.requests.submitted,
    joined: status.flights.joined, bytes: status.flights.bytes, lookups: status.cache.lookups, used: status.cache.used,
    validated: status.cache.validated, total: status.times.total.buckets, bounds: status.times["bounds-us"],
    queue: status.queue, running: status["flights-now"].running,
  };
}

// Change per second of a counter between neighbouring samples.
const rates = name => pairs((old, now, time) => (now[name] - old[name]) / time);

function pairs(value) {
  return samples.map((now, index) => {
    const old = samples[index - 1];
    return old ? value(old, now, now.seconds - old.seconds) : NaN;
  });
}

// A value over the last ten seconds, because a second has few observations.
function windows(value) {
  return samples.map((now, index) => index === 0 ? NaN : value(samples[Math.max(0, index - 10)], now));
}

const ratio = (part, whole) => whole > 0 ? part / whole : NaN;

const plots = [
  {title: "Requests per second", text: short, lines: [
    ["answered", () => rates("answered")], ["failed", () => rates("failed")], ["submitted", () => rates("submitted")]]},
  {title: "Bytes received per second", text: bytes, lines: [["bodies", () => rates("bytes")]]},
  {title: "Time from request to outcome", text: duration, lines: [0.5, 0.9, 0.99].map(part => ["p" + part * 100, () =>
    windows((old, now) => quantile(old.total, now.total, now.bounds, part))])},
  {title: "Queue, by class", text: short, lines: ["high", "normal", "low", "background"].map(name => [name, () =>
    samples.map(now => now.queue[name] ?? NaN)])},
  {title: "Running transfers", text: short, lines: [["running", () => samples.map(now => now.running)]]},
  {title: "Cache and sharing", text: percent, top: 1, lines: [
    ["cache hits", () => windows((old, now) => ratio(now.used - old.used + now.validated - old.validated, now.lookups - old.lookups))],
    ["shared requests", () => windows((old, now) => ratio(now.joined - old.joined, now.submitted - old.submitted))]]},
];

function draw() {
  for (const plot of plots) {
    const lines = plot.lines.map(([, values]) => values());
    const most = plot.top ?? Math.max(...lines.flat().filter(Number.isFinite), 0);
    plot.svg.replaceChildren(
      ...[0, 50, 100].map(y => drawn("line", {x1: 0, x2: kept, y1: y, y2: y})),
      ...lines.map((values, line) => drawn("polyline", {class: "s" + line, points: values
        .map((value, index) => [kept - values.length + index, value])
        .filter(([, value]) => Number.isFinite(value))
        .map(([x, value]) => x + "," + (100 - (most > 0 ? Math.min(value / most, 1) * 98 : 0)).toFixed(1)).join(" ")}))
        // The first line is on top, because equal lines cover each other.
        .reverse());
    plot.label.textContent = "top " + plot.text(most);
    lines.forEach((values, line) => {
      plot.values[line].textContent = plot.lines[line][0] + " " + plot.text(values[values.length - 1]);
    });
  }
}

function layOut() {
  for (const plot of plots) {
    const card = make("div", undefined, "plot"), figure = make("figure"), caption = make("figcaption");
    plot.svg = drawn("svg", {viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img", "aria-label": plot.title});
    plot.label = make("span", "", "top");
    plot.values = plot.lines.map(([name], line) => make("li", name, "s" + line));
    const legend = make("ul", undefined, "legend");
    legend.append(...plot.values);
    caption.append(make("strong", plot.title), plot.label);
    figure.append(caption, plot.svg, legend);
    card.append(figure);
    element("plots").append(card);
  }
}

// MARK: tiles and tables

function showTiles(status) {
  const workers = status.workers;
  const tiles = {
    "answered": short(status.requests.answered), "failed": short(failed(status.requests)),
    "removed": short(status.requests.removed), "pending": short(status.requests.pending - (status.requests["failed-kept"] ?? 0)),
    "running": short(status["flights-now"].running) + " of " + short(sum(workers.map(worker => worker.slots))),
    "coalesced": short(status.flights.joined), "from the cache": short(status.cache.used),
    "received": bytes(status.flights.bytes), "clients": short(status.clients), "handlers": short(status.handlers),
  };
  element("tiles").replaceChildren(...Object.entries(tiles).map(([name, value]) => {
    const tile = make("div", undefined, "tile"), number = make("strong", value);
    number.id = "tile-" + name.replaceAll(" ", "-");
    tile.append(make("p", name), number);
    return tile;
  }));
}

function showTable(id, columns, rows, empty) {
  const head = make("tr"), table = element(id);
  head.append(...columns.map(([name, , isNumber]) => make("th", name, isNumber ? "number" : "")));
  const lines = rows.map(row => {
    const line = make("tr");
    line.append(...columns.map(([, value, isNumber]) => make("td", value(row), isNumber ? "number" : "")));
    return line;
  });
  if (lines.length === 0) {
    const cell = make("td", empty);
    cell.colSpan = columns.length;
    const line = make("tr");
    line.append(cell);
    lines.push(line);
  }
  const top = make("thead"), body = make("tbody");
  top.append(head);
  body.append(...lines);
  table.replaceChildren(top, body);
}

function showTables(status) {
  const origins = [...status.origins].sort((a, b) => b.running - a.running || b.flights - a.flights).slice(0, 50);
  showTable("origins", [
    ["origin", row => row.origin], ["running", row => row.running, true], ["limit", row => row.limit, true],
    ["flights", row => row.flights, true], ["spacing", row => duration(row["spacing-ms"] / 1000), true],
    ["state", row => row["cooling-ms"] ? "cool-down, " + duration(row["cooling-ms"] / 1000) : "open"],
  ], origins, "no origin has flights");
  showTable("workers", [
    ["process", row => row.pid], ["phase", row => row.phase], ["running", row => row.running, true],
    ["slots", row => row.slots, true], ["cancelling", row => row.cancelling, true],
    ["schemes", row => Array.isArray(row.schemes) ? row.schemes.join(", ") : String(row.schemes ?? "")],
  ], status.workers, "no worker is connected");
  showTable("failures", [["cause", row => row[0]], ["requests", row => short(row[1]), true]],
    Object.entries(status.requests.failed).sort((a, b) => b[1] - a[1]), "no request has failed");
}

// MARK: events

function log(time, text, isBad) {
  const line = make("li"), stamp = make("time", time.slice(11, 19));
  stamp.dateTime = time;
  line.append(stamp, make("span", text, isBad ? "bad" : ""));
  element("events").prepend(line);
  while (element("events").children.length > 200) element("events").lastChild.remove();
}

function logChanges(document) {
  const status = document.status, time = document.time;
  if (status && (!previous || previous.broker !== status.broker)) {
    log(time, "broker " + status.broker + " answers");
    samples.length = 0;
    previous = null;
    pids = null;
  }
  if (!status) {
    if (previous) log(time, "no broker answers", true);
    return;
  }
  const now = new Set(status.workers.map(worker => worker.pid));
  if (pids) {
    for (const pid of now) if (!pids.has(pid)) log(time, "worker " + pid + " connected");
    for (const pid of pids) if (!now.has(pid)) log(time, "worker " + pid + " disconnected", true);
  }
  pids = now;
  if (!previous) return;
  if (previous.phase !== status.phase) log(time, "the broker is " + status.phase, status.phase !== "serving");
  if (previous.admission !== status.admission) {
    log(time, "admission is " + status.admission, status.admission !== "open");
  }
  const cooling = new Set(previous.origins.filter(row => row["cooling-ms"]).map(row => row.origin));
  for (const row of status.origins) {
    if (row["cooling-ms"] && !cooling.has(row.origin)) {
      log(time, row.origin + " is in cool-down for " + duration(row["cooling-ms"] / 1000), true);
    }
  }
  const lost = status.flights.lost - previous.flights.lost;
  if (lost > 0) log(time, counted(lost, "attempt") + " lost with a worker", true);
  for (const [cause, count] of Object.entries(status.requests.failed)) {
    const more = count - (previous.requests.failed[cause] ?? 0);
    if (more > 0) log(time, counted(more, "request") + " failed: " + cause, true);
  }
  for (const fault of status.faults) {
    const old = previous.faults.find(other => other.path === fault.path);
    if (!old || old.state !== fault.state || old.count !== fault.count) {
      log(time, fault.place + " " + fault.path + " " + fault.state, fault.state === "lost");
    }
  }
}

// MARK: the stream

function show(document) {
  const state = element("state");
  state.textContent = document.ready ? "ready" : "not ready: " + document.reason;
  state.className = document.ready ? "good" : "bad";
  logChanges(document);
  const status = document.status;
  previous = status;
  if (!status) return;
  element("broker").textContent = "broker " + status.broker;
  samples.push(sample(status, performance.now() / 1000));
  if (samples.length > kept) samples.shift();
  showTiles(status);
  showTables(status);
  draw();
}

function listen() {
  const stream = new EventSource("events");
  stream.onmessage = event => show(JSON.parse(event.data));
  stream.onerror = () => {
    element("state").textContent = "no connection to earshot-web";
    element("state").className = "bad";
    // The browser repeats a broken stream itself, but gives up after an error status.
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

element("search").addEventListener("submit", async event => {
  event.preventDefault();
  const query = new URLSearchParams(new FormData(element("search")));
  let rows;
  try {
    const response = await fetch("why?" + query);
    const text = await response.text();
    rows = response.ok ? Object.entries(JSON.parse(text)).filter(([name]) => name !== "broker") : [["error", text]];
  } catch (error) {
    rows = [["error", "no connection to earshot-web"]];
  }
  element("reason").replaceChildren(...rows.flatMap(([name, value]) => [
    make("dt", name), make("dd", typeof value === "object" ? JSON.stringify(value) : String(value))]));
});

layOut();
listen();
