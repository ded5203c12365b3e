// What the explorables share: controls whose state stands in the URL's hash, and charts as SVG.
"use strict";
(function (root) {
  const round = (x, d = 3) => (x === 0 ? "0" : !Number.isFinite(x) ? "–" : Math.abs(x) >= 100 ? Math.round(x).toLocaleString("en")
    : Math.abs(x) < 1e-4 ? x.toExponential(0) : String(parseFloat(x.toPrecision(d))));
  const percent = (x) => Math.round(100 * Math.max(0, x)) + "%";
  const nearest = (list, x) => list.reduce((best, v, i) => (Math.abs(v - x) < Math.abs(list[best] - x) ? i : best), 0);

  // Binds the inputs of a page to its state. spec: {name: {values, show}}, a slider's values, or null for the values of
  // a select or of radio buttons. changed(name) is called after each change, also of the hash.
  function bind(page, state, spec, changed) {
    const own = Object.keys(spec), inputs = (name) => page.querySelectorAll(`[name=${name}]`), first = { ...state };
    function show() {
      for (const name of own) for (const input of inputs(name)) {
        const values = spec[name] && spec[name].values;
        if (input.type === "radio") input.checked = input.value === state[name];
        else if (values && input.type === "range") {
          Object.assign(input, { min: 0, max: values.length - 1, step: 1, value: nearest(values, state[name]) });
          const text = (spec[name].show || round)(state[name]);
          input.setAttribute("aria-valuetext", text);
          if (input.previousElementSibling) input.previousElementSibling.value = text;
        } else input.value = state[name];
      }
    }
    function read() {
      const given = new URLSearchParams(location.hash.slice(1));
      for (const name of own) {
        const text = given.get(name), values = spec[name] && spec[name].values, number = parseFloat(text);
        if (text === null) state[name] = first[name];
        else if (!values) state[name] = [...inputs(name)].some((i) => i.value === text
          || (i.options && [...i.options].some((o) => o.value === text))) ? text : first[name];
        else if (Number.isFinite(number)) state[name] = spec[name].exact ? Math.min(spec[name].exact, Math.max(0, number))
          : values[nearest(values, number)];
      }
    }
    const write = () => history.replaceState(null, "", "#" + new URLSearchParams(own.map((name) => [name, state[name]])));
    const set = (values, name) => { Object.assign(state, values), show(), write(), changed(name); };
    page.addEventListener("input", ({ target: { name, value, type } }) => {
      if (name in spec) set({ [name]: type === "range" ? spec[name].values[value] : value }, name);
    });
    addEventListener("hashchange", () => { read(), show(), changed(); });
    read(), show();
    document.body.classList.add("playing"); // hides the still
    return set;
  }

  function ticks(low, high, log) { // 1, 2 or 5 times a power of ten; with a logarithm powers only, where there are many
    const found = [];
    if (log) {
      const few = Math.log10(high / low) < 2.2;
      for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
        for (const m of few ? [1, 2, 5] : [1]) if (m * 10 ** e >= low * 0.999
          && m * 10 ** e <= high * 1.001) found.push(m * 10 ** e);
      return found;
    }
    const step = [1, 2, 5,
      10].map((m) => m * 10 ** Math.floor(Math.log10((high - low) / 5))).find((s) => (high - low) / s <= 5.5);
    for (let i = Math.ceil(low / step); i * step <= high * 1.0001; i++) found.push(i * step);
    return found;
  }
  const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  // Returns a chart as SVG's text. o: {w, h, x: [from, to], y, logX, logY, xName, yName, label, series}; a series is
  // {name, of, points: [[x, y]], dash, wide, dots, band}: `of` chooses its colour, dots has marks instead of a line.
  function chart(o) {
    const { w, h } = o, named = o.series.some((s) => s.name), right = named ? Math.min(140, 0.34 * w) : 12;
    const [left, top, bottom] = [46, 20, 34], scale = (v, [a, b], log) => (log ? Math.log(v / a) / Math.log(b / a)
      : (v - a) / (b - a));
    const X = (v) => left + (w - left - right) * scale(v, o.x, o.logX),
      Y = (v) => h - bottom - (h - top - bottom) * scale(v, o.y, o.logY);
    const inside = ([x, y]) => Number.isFinite(y) && x >= o.x[0] && x <= o.x[1] * 1.0001,
      clip = (y) => Math.max(top - 6, Math.min(h - bottom, Y(Math.max(y, o.logY ? o.y[0] / 2 : y))));
    let out = "", names = [];
    for (const v of ticks(...o.y,
      o.logY)) out += `<path class="grid" d="M${left} ${Y(v).toFixed(1)}H${w - right}"/><text class="soft" x="${left - 5}" y="${(Y(v) + 4).toFixed(1)}" text-anchor="end">${(o.yShow || round)(v)}</text>`;
    let free = -1e9;
    for (const v of ticks(...o.x, o.logX)) {
      if (X(v) - free < 34) continue;
      free = X(v);
      out += `<text class="soft" x="${X(v).toFixed(1)}" y="${h - bottom + 16}" text-anchor="middle">${(o.xShow || round)(v)}</text>`;
    }
    out += `<text class="soft" x="0" y="11">${escape(o.yName || "")}</text><text class="soft" x="${w - right}" y="${h - 3}" text-anchor="end">${escape(o.xName || "")}</text>`;
    for (const s of o.series) {
      const points = s.points.filter(inside);
      if (!points.length) continue;
      if (s.dots) out += points.map(([x, y,
        title]) => `<path class="${s.dots} of-${s.of}" d="M${X(x).toFixed(1)} ${(clip(y) - 5).toFixed(1)}l5 5l-5 5l-5-5z"><title>${escape(title || "")}</title></path>`).join("");
      else if (s.band) out += `<path class="band of-${s.of}" d="M${points.map(([x, y]) => X(x).toFixed(1) + " " + clip(y).toFixed(1)).join("L")}L${[...points].reverse().map(([x, , y]) => X(x).toFixed(1) + " " + clip(y).toFixed(1)).join("L")}Z"/>`;
      else out += `<path class="line of-${s.of}" style="stroke-width:${s.wide || 1.6};stroke-dasharray:${s.dash || "none"}" d="M${points.map(([x, y]) => X(x).toFixed(1) + " " + clip(y).toFixed(1)).join("L")}"/>`;
      if (s.name) names.push({ y: clip(points[points.length - 1][1]), x: X(points[points.length - 1][0]), s });
    }
    names.sort((a, b) => a.y - b.y);
    names.forEach((n, i) => (n.at = Math.max(n.y, i ? names[i - 1].at + 14 : top)));
    for (let i = names.length - 1, most = h - bottom; i >= 0; i--, most -= 14) names[i].at = most = Math.min(names[i].at, most);
    for (const { at, y, x, s } of names)
      out += `<path class="grid" d="M${(x + 3).toFixed(1)} ${y.toFixed(1)}L${w - right + 6} ${at.toFixed(1)}"/><text class="name of-${s.of}" x="${w - right + 9}" y="${(at + 4).toFixed(1)}" style="font-weight:${s.wide ? 700 : 400}">${escape(s.name)}</text>`;
    return `<svg viewBox="0 0 ${w} ${h}" width="${w}" height="${h}" role="img" aria-label="${escape(o.label || "")}">${out}</svg>`;
  }
  const table = (names, rows,
    caption) => `<table><caption>${caption}</caption><thead><tr>${names.map((n) => `<th scope="col">${n}`).join("")}</tr></thead><tbody>${rows.map((r) =>
    `<tr${r.first ? ' class="first"' : ""}><th scope="row">${r.cells[0]}${r.cells.slice(1).map((x) => "<td>" + x).join("")}`).join("")}</tbody></table>`;
  const resized = (page, draw) => {
    let width = 0;
    new ResizeObserver(() => { if (page.clientWidth !== width) (width = page.clientWidth), draw(); }).observe(page);
  };
  const api = { round, percent, bind, ticks, chart, table, resized, escape };
  if (typeof module !== "undefined") module.exports = api;
  else root.Play = api;
})(globalThis);
