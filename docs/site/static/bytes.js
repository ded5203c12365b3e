// The page "Bytes and links": the seconds of a step, by the formulas of lab/measure/step_cost.py in simulate.js.
"use strict";
(function () {
  const { cost } = Simulate, { round, chart, escape } = Play, page = document.getElementById("bytes"),
    $ = (q) => page.querySelector(q);
  const grid = (...decades) => decades.flatMap((d) => [1, 2, 5].map((m) => +(m * d).toPrecision(1)));
  const unit = (x, units) => { // 0.02 s as "20 ms"
    const [size, name] = units.find(([s]) => x >= s * 0.9995) || units[units.length - 1];
    return `${round(x / size)} ${name}`;
  };
  const seconds = (x) => (Number.isFinite(x) ? unit(x, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) : "–");
  const SIZES = [[1e3, "GB"], [1, "MB"], [1e-3, "KB"]], RATES = [[1, "Gbit/s"], [1e-3, "Mbit/s"]],
    whole = Array.from({ length: 12 }, (_, i) => 2 ** i);
  const SPEC = { // S in MB, B in Gbit/s, a in microseconds, c in milliseconds
    n: { values: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], show: (x) => x.toLocaleString("en"), exact: 4096 },
    B: { values: grid(0.001, 0.01, 0.1, 1, 10, 100), show: (x) => unit(x, RATES), exact: 1e4 },
    a: { values: [0, ...grid(1, 10, 100, 1e3, 1e4)], show: (x) => (x ? seconds(x / 1e6) : "no time"), exact: 1e6 },
    S: { values: grid(0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5), show: (x) => unit(x, SIZES), exact: 1e7 },
    c: { values: grid(0.1, 1, 10, 100, 1e3, 1e4), show: (x) => seconds(x / 1e3), exact: 1e6 },
    P: { values: whole.slice(0, 8), show: String, exact: 4096 },
      T: { values: [2, 5, 10, 12, 20, 50, 100, 500], show: String, exact: 1e4 },
    ratio: { values: [2, 4, 10, 20, 50, 100, 200, 500, 1000], show: String, exact: 1e4 },
      inside: { values: [1, 2, 4, 8, 16], show: String },
    Bi: { values: [10, 50, 100, 200, 500, 1000, 2400, 7200], show: (x) => unit(x, RATES) },
  };
  const BASE = { n: 8, B: 10, a: 20, S: 102.2, c: 260, P: 1, T: 10, ratio: 100, inside: 8, Bi: 1000 };
  const PRESETS = { // ResNet-50 as in Scale-Laboratory; the last two are assumed
    "Examples here, 10 Mbit/s": { n: 2, B: 0.01, a: 100, S: 0.0689, c: 1, inside: 1 },
      "ResNet-50, 10 Gbit/s": { n: 64, B: 10, inside: 8 },
    "7 billion, data centre": { n: 512, B: 400, a: 10, S: 14000, c: 4000 },
      "7 billion, over the Internet": { n: 8, B: 1, a: 20000, S: 14000, c: 4000, inside: 1 },
  };
  const SURE = { "ps, asynchronous": "within a factor of two: of 31 rows of ours 23 lie between",
    "ps, synchronous": "within a factor of two", ring: "28 published efficiencies lie in the range, 2 points allowed",
    "halving and doubling": "one published point", "ZeRO 1 and 2": "as the ring: the same bytes",
      local: "7 published steps, within 13%" };
  const OF = ["one", "async", "sync", "ring", "bounded", "backup", "local", "gossip", "gossip", "alocal", "alocal", "dynsgd"];
  const state = { ...BASE, ...PRESETS["ResNet-50, 10 Gbit/s"] },
    SI = (x) => ({ n: x.n, c: x.c / 1e3, S: x.S * 1e6, B: x.B * 1.25e8, a: x.a / 1e6, P: x.P, T: x.T, ratio: x.ratio,
    inside: x.inside, Bi: x.Bi * 1.25e8 });
  function predicted(p) { // [lowest, highest] seconds of a published or measured point
    const S = p.megabytes * 1e6, B = p.gigabits * 1.25e8;
    if (p.by === "ps_asynchronous") return cost.psAsynchronous(p.n, p.c, S, B, 0, p.P);
    if (p.by === "ps") return [p.c + cost.psInTurn(p.n, S, B, 0, p.P), p.c + cost.psTogether(p.n, S, B, 0, p.P)];
    const of = { ring: () => cost.ring(p.n, S, B), halving_doubling: () => cost.halvingDoubling(p.n, S, B),
      ps_on_the_workers: () => cost.psOnTheWorkers(p.n, S, B, 0, p.P) };
    return cost.between(p.c, of[p.by]());
  }
  const POINTS = MEASURED.points.map((p) => ({ ...p, seconds: p.seconds || p.c / p.efficiency, range: predicted(p) }));
  function schemes(x) {
    const found = cost.schemes(x), all = {};
    for (const name in found) {
      all[name] = found[name];
      if (name === "hierarchical") all["ZeRO 1 and 2"] = found.ring;
    }
    return all;
  }
  function bound(name, x) { // what takes longest: computing, bytes, or messages
    const [, all] = schemes(x)[name], [, still] = schemes({ ...x, a: 0 })[name],
      parts = { "computing": x.c, "bytes": still - x.c, "the messages' latency": all - still };
    return Object.keys(parts).reduce((most, k) => (parts[k] > parts[most] ? k : most));
  }

  function draw() {
    const x = SI(state), all = schemes(x), names = Object.keys(all), w = Math.max(340, $(".steps").clientWidth), narrow = w < 560,
      gains = cost.firstToChange(x);
    for (const b of $(".presets").children) b.setAttribute("aria-pressed",
      Object.entries({ ...BASE, ...PRESETS[b.textContent] }).every(([k, v]) => state[k] === v));
    const sorted = names.map((name) => all[name][1]).sort((a, b) => a - b),
      cap = Math.min(sorted[sorted.length - 1], Math.max(2.2 * sorted[6], 1.5 * x.c)) * 1.02;
    const left = narrow ? 0 : 238, right = 118, row = narrow ? 40 : 27, X = (s) => left
      + ((w - left - right) * Math.min(s, cap)) / cap;
    let out = `<defs><pattern id="more" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern></defs>`;
    const inOne = x.n > 1 && x.n <= x.inside, shown = (name) => escape(name) + (inOne && name === "hierarchical" ? ", all in one machine" : ""),
      best = names.filter((name) => !inOne || name !== "hierarchical").reduce((a, b) => (all[b][1] < all[a][1] ? b : a));
    names.forEach((name, i) => {
      const [low, high] = all[name], y = i * row + (narrow ? 17 : 3);
      out += `<g class="of-${OF[i + 1]}"><text x="${narrow ? 0 : left - 8}" y="${narrow ? y - 3 : y + 15}" text-anchor="${narrow ? "start" : "end"}">${shown(name)}</text>
        <rect class="computes" x="${left}" y="${y}" width="${X(x.c) - left}" height="18"/><rect class="fill" x="${X(x.c)}" y="${y}" width="${Math.max(0, X(low) - X(x.c))}" height="18"/>
        <rect fill="url(#more)" x="${X(low)}" y="${y}" width="${Math.max(0.5, X(high) - X(low))}" height="18"/></g><text x="${X(high) + 6}" y="${y + 14}">${high > cap ? "▸ " : ""}${low * 1.01 < high ? seconds(low) + "–" : ""}${seconds(high)}</text>`;
    });
    $(".steps").innerHTML = `<svg viewBox="0 0 ${w} ${names.length * row + 6}" width="${w}" height="${names.length * row + 6}" role="img" aria-label="Seconds of a step; the numbers are in the table.">${out}</svg>`;
    const ring = all.ring, faster = x.n * x.c / ring[1];
    $(".verdict").innerHTML = x.n === 1 ? "<b>One worker sends nothing</b>, except to a parameter server." :
      `<b>A ring's step takes ${seconds(ring[0])} to ${seconds(ring[1])}, bounded by ${bound("ring", x)}.</b> ${round(x.n)} workers are ${faster < 1 ? "slower than one" : `${round(faster, 2)} times as fast as one`} where nothing overlaps.
      <b>What pays first: ${gains[0][0]}</b> (${round(gains[0][1])} times as fast), then ${gains[1][0]} (${round(gains[1][1])}). Least for a mini-batch: ${best}, ${seconds(all[best][1])}${/local|1\//.test(best) ? "; whether it learns as much is another question" : ""}.`;
    const half = $(".speed").clientWidth, most = gains[0][1];
    $(".first-to-change").innerHTML = `<svg viewBox="0 0 ${half} ${gains.length * 27 + 6}" width="${half}" height="${gains.length * 27 + 6}" role="img" aria-label="What pays first">${gains.map(([name, gain], i) =>
      `<text x="0" y="${i * 27 + 17}">${name}</text><rect class="fill of-ring" x="165" y="${i * 27 + 3}" width="${Math.max(1, ((half - 225) * (gain - 1)) / Math.max(0.01, most - 1))}" height="18"/><text x="${172 + ((half - 225) * (gain - 1)) / Math.max(0.01, most - 1)}" y="${i * 27 + 17}">${round(gain)}</text>`).join("")}</svg>`;
    const ns = SPEC.n.values.filter((n) => n <= Math.max(16, 8 * state.n)), last = ns[ns.length - 1],
      lines = { "ps, asynchronous": "async", ring: "ring", "halving and doubling": "bounded", hierarchical: "gossip",
      [`ring, ${x.T} local steps`]: "alocal" };
    const curve = (name) => ns.map((n) => [n, (n * x.c) / schemes({ ...x, n })[name][1]]);
    const like = POINTS.filter((p) => Math.abs(p.megabytes / state.S - 1) < 0.05 && Math.abs(p.gigabits / state.B - 1) < 0.05
      && Math.abs(p.c / x.c - 1) < 0.2);
    $(".speed").innerHTML = chart({ w: half, h: 280, x: [1, last],
      y: [Math.min(0.5, ...curve("ring").map(([, y]) => 0.8 * y)), last * 1.2], logX: true, logY: true, xName: "workers",
      yName: "speed-up", label: "Speed-up against the number of workers",
      series: [{ of: "one", points: [[1, 1], [last, last]], dash: "1 3", name: "ideal" },
        ...Object.entries(lines).map(([name, of]) => ({ name: name.replace("halving and doubling", "halving, doubling"), of,
        wide: name === "ring" ? 3 : 0, points: curve(name) })),
        { of: "async", dots: "dot", points: like.map((p) => [p.n, (p.n * p.c) / p.seconds, p.case]) }] });
    const own = POINTS.filter((p) => p.mark === "measured here").length;
    $(".t-sure").textContent = `How sure: ${POINTS.length - own} published efficiencies and ${own} steps measured here (◆), to the least that is predicted; bars: the predicted range`;
    $(".sure").innerHTML = chart({ w, h: 230, x: [-0.5, POINTS.length], y: [0.6, 4], logY: true, xShow: () => "",
      xName: "published | measured here", yName: "seconds, to the lowest", label: "Predicted ranges and points",
      series: [...POINTS.map((p, i) => ({ of: "one", band: true,
        points: [[i - 0.3, p.range[1] / p.range[0], 1], [i + 0.3, p.range[1] / p.range[0], 1]] })),
        { of: "async", dots: "dot", points: POINTS.map((p, i) => [i, p.seconds / p.range[0],
          `${p.source}: ${p.case} (${p.mark})`]) }] });
    $(".scroll").innerHTML = Play.table(["scheme", "step, lowest", "highest", "speed-up", "bounded by", "how sure"],
      names.map((name) => ({ first: name === best, cells: [shown(name), seconds(all[name][0]), seconds(all[name][1]),
      round((x.n * x.c) / all[name][1], 2) + "–" + round((x.n * x.c) / all[name][0], 2), bound(name, x), SURE[name]
        || (/local/.test(name) ? SURE.local : "assumed")] })), "The same numbers: a mini-batch of one worker.");
  }
  const words = (p) => `${p.case}: ${p.seconds < p.range[0] * 0.98 || p.seconds > p.range[1] * 1.02 ? "outside" : "inside"} of the predicted ${seconds(p.range[0])} to ${seconds(p.range[1])}, was ${seconds(p.seconds)} (${p.source}; ${p.mark}).`;
  $(".presets").innerHTML = Object.keys(PRESETS).map((p) => `<button type="button">${p}</button>`).join("");
  $("select").innerHTML = `<option value="">choose: it sets the controls</option>`
    + POINTS.map((p, i) => `<option value="${i}">${escape(p.source.slice(0, 34))}: ${escape(p.case)}</option>`).join("");
  page.hidden = false;
  const set = Play.bind(page, state, SPEC, draw);
  $("select").addEventListener("input", ({ target: { value } }) => {
    if (value === "") return;
    const p = POINTS[value];
    set({ ...BASE, n: p.n, P: p.P, c: p.c * 1e3, S: p.megabytes, B: p.gigabits, a: 0 });
    $(".picked").textContent = words(p);
  });
  page.addEventListener("click", ({ target: t }) => { if (t.matches("button")) set({ ...BASE, ...PRESETS[t.textContent] }),
    ($(".picked").textContent = ""); });
  Play.resized(page, draw);
})();
