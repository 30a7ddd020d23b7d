"use strict";
(() => {
const one = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const closed = [];
addEventListener("beforeprint", () => {
  for (const d of document.querySelectorAll("details:not([open])")) { closed.push(d); d.open = true; }
});
addEventListener("afterprint", () => { while (closed.length) closed.pop().open = false; });
for (const c of document.querySelectorAll(".controls")) c.hidden = false;

// Single predictions: one panel at a time.
const row = one("rests-row"), panels = [...document.querySelectorAll(".rests")];
const showRow = () => { for (const p of panels) p.hidden = p.dataset.row !== row.value; };
row.addEventListener("change", showRow);
showRow();

// The table of points: what the explorer reads, in the order of the page.
const table = one("points"), body = table.tBodies[0], rows = [...body.rows];
const heads = [...table.tHead.rows[0].cells], names = heads.map(h => h.textContent);
const kinds = heads.map(h => h.dataset.kind);
const cells = rows.map(r => [...r.cells].map(c => c.textContent));
const value = (text, kind) => kind === "number" ? Number(text) : kind === "date" ? Date.parse(text) / 864e5 : text;

heads.forEach((head, j) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = names[j];
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const h of heads) h.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = rows.map((_, i) => i).sort((a, b) => {
      const p = value(cells[a][j], kinds[j]), q = value(cells[b][j], kinds[j]);
      return (p < q ? -1 : p > q ? 1 : a - b) * (down ? -1 : 1);
    });
    body.replaceChildren(...order.map(i => rows[i]));
  });
});

one("save-csv").addEventListener("click", () => {
  // A text that a spreadsheet would take for a formula gets an apostrophe.
  const quoted = (t, k) => {
    const safe = k === "text" && /^[=+\-@\t\r]/.test(t) ? "'" + t : t;
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  const lines = [names.map(n => quoted(n, "text"))];
  for (const r of body.rows) lines.push([...r.cells].map((c, j) => quoted(c.textContent, kinds[j])));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map(l => l.join(",")).join("\r\n") + "\r\n"], {type: "text/csv"}));
  link.download = "coreset.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

// The explorer: circles move when a column is chosen.
const chart = one("explorer"), points = [...chart.querySelectorAll(".point")], said = one("explorer-said");
const RIGHT = 388, TOP = 12, GROUND = 222;
const column = j => j + 1;  // the first column of the table numbers the points
const short = (t, most) => t.length > most ? t.slice(0, most - 1) + "…" : t;

function axis(j) {
  const kind = kinds[j], texts = cells.map(c => c[j]);
  if (kind === "text") {
    const levels = [...new Set(texts)].sort();
    return {at: texts.map(t => levels.indexOf(t)), low: -.5, high: levels.length - .5,
            ticks: levels.map((l, i) => [i, short(l, 14)]).filter((_, i) => i % Math.ceil(levels.length / 8) === 0)};
  }
  const at = texts.map(t => value(t, kind));
  let low = Math.min(...at), high = Math.max(...at);
  const margin = .05 * (high - low) || Math.abs(.05 * high) || 1e-12;
  low -= margin; high += margin;
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= rough), ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) {
    const v = k * step;
    ticks.push([v, kind === "date" ? new Date(v * 864e5).toISOString().slice(0, 10) : String(Number(v.toPrecision(4)))]);
  }
  return {at, low, high, ticks: kind === "date" ? ticks.filter((_, i) => i % 2 === 0) : ticks};
}

function mark(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) made.setAttribute(k, v);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw() {
  const jx = column(Number(one("explorer-x").value)), jy = column(Number(one("explorer-y").value));
  const x = axis(jx), y = axis(jy);
  const LEFT = 28 + 7.2 * Math.max(...y.ticks.map(([, t]) => t.length));
  const px = v => LEFT + (RIGHT - LEFT) * (v - x.low) / (x.high - x.low);
  const py = v => GROUND - (GROUND - TOP) * (v - y.low) / (y.high - y.low);
  points.forEach((p, i) => { p.setAttribute("cx", px(x.at[i])); p.setAttribute("cy", py(y.at[i])); });
  chart.querySelector(".axis").setAttribute("d", `M${LEFT} ${TOP}V${GROUND}H${RIGHT}`);
  chart.querySelector(".ticks-x").replaceChildren(...x.ticks.flatMap(([v, t]) => [
    mark("path", {class: "tick", d: `M${px(v)} ${GROUND}v4`}),
    mark("text", {x: Math.min(px(v), 400 - 3.5 * t.length), y: GROUND + 16, "text-anchor": "middle"}, t)]));
  chart.querySelector(".ticks-y").replaceChildren(...y.ticks.flatMap(([v, t]) => [
    mark("path", {class: "grid-line", d: `M${LEFT} ${py(v)}H${RIGHT}`}),
    mark("text", {x: LEFT - 6, y: py(v) + 4, "text-anchor": "end"}, t)]));
  chart.querySelector(".label-x").textContent = short(names[jx], 40);
  chart.querySelector(".label-y").textContent = short(names[jy], 30);
}
for (const id of ["explorer-x", "explorer-y"]) one(id).addEventListener("change", draw);

const describe = i => "Point " + cells[i].map((t, j) => j ? names[j] + " " + t : t).join(", ");
let current = 0;
function choose(i, focus) {
  points[current].setAttribute("tabindex", "-1");
  for (const chosen of document.querySelectorAll(".chosen")) chosen.classList.remove("chosen");
  current = i;
  points[i].setAttribute("tabindex", "0");
  points[i].classList.add("chosen");
  rows[i].classList.add("chosen");
  said.textContent = describe(i);
  if (focus) points[i].focus();
}
points.forEach((p, i) => {
  p.setAttribute("tabindex", i ? "-1" : "0");
  p.setAttribute("role", "img");
  p.setAttribute("aria-label", describe(i));
  p.addEventListener("pointerenter", () => choose(i, false));
  p.addEventListener("focus", () => { if (!p.classList.contains("chosen")) choose(i, false); });
  p.addEventListener("keydown", event => {
    const move = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!move) return;
    event.preventDefault();
    choose((i + move + points.length) % points.length, true);
  });
});
chart.setAttribute("role", "group");
})();
