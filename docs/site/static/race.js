// The race's page: controls, the race, its timeline and charts. The numbers come from learn.js.
"use strict";
(function () {
  const M = Learn, page = document.getElementById("race"), $ = (q) => page.querySelector(q), { round, percent } = Play;
  const NAMES = { one: "One worker", ring: "Synchronous (ring)", sync: "Synchronous (ps)", backup: "Backup workers",
    bounded: "Bounded staleness",
    async: "Asynchronous", dynsgd: "DynSGD", gossip: "Gossip", local: "Local steps (ring)", alocal: "Local steps (ps)" };
  const BASE = { n: 64, cv: 0, slow: 1, ps: 0, T: 8, s: 4, rate: 0, batch: 1, mean: 100 };
  const PRESETS = { "Equal machines": { ...BASE, ps: 5 }, "Random times": { ...BASE, cv: 1 },
    "One slow machine": { ...BASE, slow: 5 },
    "Slow network": { ...BASE, n: 32, ps: 100 } };
  const WHY = {
    one: () => (state.n === 1 ? "There is nobody to wait for." : state.ps ? "Messages cost more than the others' help."
      : "At this rate the others' late gradients do more harm than good."),
    ring: () => "All finish at the same time, so nobody waits long, and a ring has no server to queue at.",
    sync: () => "All finish at the same time, so nobody waits long.",
    backup: () => `Each step goes on without the last ${M.backups(state.n)} of ${state.n} workers.`,
    bounded: () => "Fast workers go ahead, but not so far that their gradients are too old.",
    async: () => "Nobody waits; that its gradients are old costs less than waiting would.",
    dynsgd: () => "Nobody waits, and the later a push, the smaller its step.",
    gossip: () => "Nobody waits for all: each averages with one neighbour on a ring. The loss is one worker's.",
    local: () => `One exchange for ${state.T} gradients, so messages and chance count less.`,
    alocal: () => `One message for ${state.T} gradients, and nobody waits.`,
  };
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
  const SPEC = {
    n: { values: powers(0, 12), show: (x) => x.toLocaleString("en") }, cv: { values: [0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2] },
    ps: { values: [0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 55.1, 100, 200, 500], show: (x) => round(x) + " ms" },
    slow: { values: [1, 1.5, 2, 3, 5, 8, 10], show: (x) => (x > 1 ? round(x) + " times as long" : "as long as others") },
    T: { values: [2, 4, 8, 10, 16, 32, 64, 128], show: String }, s: { values: [0, 1, 2, 3, 4, 6, 8, 12, 16], show: String },
    rate: { values: [0, ...Array.from({ length: 21 }, (_, i) => 2 ** (i / 2 - 9))],
      show: (x) => (x ? round(x, 2) + " for all" : "the best of each") },
    batch: { values: powers(0, 8), show: (x) => "× " + round(x) }, mean: { values: [100], exact: 1000 }, pick: null,
  };
  const state = { ...PRESETS["Random times"], pick: "" }, still = matchMedia("(prefers-reduced-motion: reduce)");
  const stats = (window.raceStats = { frames: [], slices: [], ready: 0 });
  let results = {}, winner = null, chosen = false, clock = 1, started = 0, span = 1, pending = 0, run = null, shows = [], open = false;
  const time = (r, x = r.reached) => (x < Infinity ? round(x) : r.stable ? "> " + round(r.seconds[r.seconds.length - 1], 2)
    : "never");
  const seconds = (r) => (r.reached < Infinity && r.high > r.low ? `${time(r)} (${time(r, r.low)}–${time(r, r.high)}) s` : time(r)
    + (time(r) === "never" ? "" : " s"));
  const measured = () => MEASURED.the_race.find((p) => same(p.state)) || { rows: {}, state: {} };
  const same = (p) => Object.keys(p).every((k) => k === "pick" || p[k] === state[k]);
  const config = () => ({ ...state, ps: state.ps / 1000, mean: state.mean / 1000, noise: 2 / Math.sqrt(state.batch) });
  const equal = () => M.ALGORITHMS.filter((a) => a !== winner && results[a].reached < Infinity
    && results[a].low <= results[winner].high);

  $(".presets").innerHTML = Object.keys(PRESETS).map((p) => `<button type="button">${p}</button>`).join("");
  $(".measured").innerHTML += MEASURED.the_race.map((p,
    i) => `<button type="button" data-i="${i}">${p.page}: ${p.name}</button>`).join("");
  $(".tracks").innerHTML += M.ALGORITHMS.map((a) => `<label data-a="${a}"><input type="radio" name="pick" value="${a}"><span class="name">${NAMES[a]}</span>
    <span class="track"><i></i></span><output></output></label>`).join("");
  page.hidden = false;

  // Computes in slices of 6 ms, so that the page answers meanwhile.
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    if (!run) return;
    const t0 = performance.now();
    while (run && performance.now() - t0 < 6) {
      const { done, value } = run.next();
      if (done) run = null, finished();
      else if (value) $(`[data-a=${value}]`).classList.remove("waiting");
    }
    stats.slices.push(performance.now() - t0);
    if (run) channel.port2.postMessage(0);
  };
  function* all(c) {
    for (const name of M.ALGORITHMS) // without messages, both synchronous ones are the same
      yield ((results[name] = name === "sync" && !c.ps ? { ...results.ring, name } : yield* M.compete(name, c)), name);
  }
  function restart() {
    [results, winner, clock, stats.began, stats.done] = [{}, null, 0, performance.now(), 0];
    for (const r of page.querySelectorAll(".tracks label")) r.classList.add("waiting");
    for (const b of $(".presets").children) b.setAttribute("aria-pressed", same(PRESETS[b.textContent]));
    for (const b of page.querySelectorAll("[data-i]")) b.setAttribute("aria-pressed", same(MEASURED.the_race[b.dataset.i].state));
    run = all(config());
    channel.port2.postMessage(0);
  }
  function finished() {
    const sooner = (a, b) => results[a].reached < results[b].reached || (a === "async" && results[a].reached === results[b].reached);
    winner = state.n === 1 ? "one" : M.ALGORITHMS.reduce((best, a) => (sooner(a, best) ? a : best));
    if (!chosen) state.pick = winner;
    const first = results[winner], close = equal().map((a) => NAMES[a]), { rows, said, page: from, state: { rate } } = measured(),
      many = state.n.toLocaleString("en"), cut = M.ALGORITHMS.filter((a) => state.n > 1 && results[a].stable
        && results[a].reached === Infinity && results[a].seconds[results[a].seconds.length - 1] < first.reached);
    open = cut.length > 0;
    $(".verdict").innerHTML = first.reached === Infinity ? "<b>Nobody arrives.</b> Try another learning rate." :
      `<b>${open ? "Undecided" : "First"}: ${NAMES[winner]}, after ${time(first)} s.</b> ${open
        ? `Simulated for less, and not yet there: ${cut.map((a) => NAMES[a]).join(", ")}.` : WHY[winner]()} ${close.length ? `<b>Almost equal</b> (ranges overlap): ${close.join(", ")}.` : ""}
      ${state.n === 1 ? "" : winner === "ring" || winner === "sync" ? `Asynchronous workers wait ${percent(results.async.waits)} of their time.` : `Synchronous workers (ring) wait ${percent(results.ring.waits)} of their time.`}
      ${results.one.reached > 1.05 * first.reached && results.one.reached < Infinity ? `${many} workers are ${round(results.one.reached / first.reached, 2)} times as fast as one.` : ""}`;
    const stale = results.async.mean;
    $(".said").innerHTML = !from ? "" : `<a href="../Measurements/${from}/index.html">${from}</a> ${said}${!rate ? "" : ` Here: mean staleness ${round(stale)}; asynchronous workers ${
      results.async.reached < Infinity ? "learn" : "do not learn"}. Move CV from 0 to 1: the mean stays, the outcome does not.`}`;
    $(".seeds").textContent = first.rates.length > 1 ? `${first.rates.length} seeds` : "one seed, for so many";
    $(".scroll").innerHTML = Play.table(["algorithm", "seconds to 3%", "gradients/s", "closed form", "waiting", "staleness",
      "learning rate", "measured"],
      M.ALGORITHMS.map((a) => [a, results[a]]).map(([a, r]) => ({ first: a === winner, cells: [NAMES[a], seconds(r), round(r.rate),
        round(r.law), percent(r.waits), round(r.mean), round(r.learningRate, 2), rows[a] || ""] })),
      "The same numbers. Closed form: exact for equal or gamma times where a message takes no time; for asynchronous ones otherwise the most.");
    const c = config();
    span = Math.min(60 * c.mean, Math.max(8 * c.mean,
      2.6 * (c.mean * (M.law("ring", c) ? state.n / M.law("ring", c) / c.mean : 1))));
    stats.ready = performance.now() - stats.began;
    picked();
    [started, clock] = [performance.now(), still.matches ? 1 : 0];
    frame(started);
  }
  function picked() {
    $(`[value=${state.pick}]`).checked = true;
    $(".legend").style.setProperty("--picked", `var(--${state.pick})`);
    $(".legend span").textContent = `· the first ${round(span, 2)} s`
      + (state.n > 16 ? ` of 16 of ${state.n.toLocaleString("en")} workers` : "");
    timeline();
    charts();
  }
  function frame(now) {
    const t0 = performance.now();
    pending = 0;
    if (!winner) return;
    if (clock < 1) clock = Math.min(1, Math.max(0, (now - started) / 3500));
    const first = results[winner].reached;
    for (const [a, bar, text, row] of shows) {
      const r = results[a], share = first < Infinity ? Math.min(1, first / r.reached) : 0;
      bar.style.transform = `scaleX(${(clock * share).toFixed(4)})`;
      row.classList.toggle("first", clock === 1 && a === winner && first < Infinity && !open);
      if (text.value !== (clock === 1 ? seconds(r) : "")) text.value = clock === 1 ? seconds(r) : "";
    }
    for (const rect of page.querySelectorAll("clipPath rect")) rect.setAttribute("width", (clock * rect.dataset.w).toFixed(1));
    stats.frames.push(performance.now() - t0);
    if (clock < 1) pending = pending || requestAnimationFrame(frame);
    else stats.done = 1;
  }
  function timeline() { // the picked algorithm, and the best other one
    const w = $(".timeline").clientWidth, half = 168, other = state.pick !== winner ? winner : winner === "ring"
      || winner === "sync" ? "async" : "ring";
    const left = state.slow > 1 ? 36 : 0, X = (t) => left + ((w - left) * t) / span, shown = Math.min(16, state.n);
    let out = `<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern>
      <clipPath id="sofar"><rect x="0" y="0" height="${2 * half + 20}" width="${clock * w}" data-w="${w}"/></clipPath></defs>`;
    [state.pick, other].forEach((name, part) => {
      const r = results[name], top = part * half, many = name === "one" ? 1 : shown, high = Math.min(16, (half - 40) / many),
        paths = ["", "", ""], free = new Map();
      const bar = (kind, k, a, b) => {
        const y = (top + 32 + (k === state.n - 1 ? many - 1 : k) * high).toFixed(1), end = Math.min(X(b), w) - (kind ? 0 : 0.7);
        if (a < span && end > X(a)) paths[kind] += `M${X(a).toFixed(1)} ${y}H${end.toFixed(1)}v${(high - 1.5).toFixed(1)}H${X(a).toFixed(1)}z`;
      };
      for (let e = 0, done = 0; e < r.length && done < many; e++) {
        const k = r.worker[e];
        if ((k >= shown - 1 && k !== state.n - 1) && name !== "one" && state.n > 16) continue;
        bar(1, k, free.get(k) || 0, r.pull[e]);
        bar(r.step && r.step[e] < 0 ? 2 : 0, k, r.pull[e], r.end[e]);
        bar(1, k, r.end[e], r.push[e]);
        if (r.pull[e] > span && (free.get(k) || 0) <= span) done++;
        free.set(k, r.push[e]);
      }
      let marks = "", last = -9;
      for (const t of r.moved) {
        if (t > span) break;
        if (X(t) - last > 1.5) marks += `M${(last = X(t)).toFixed(1)} ${top + 20}v9`;
      }
      out += `<text y="${top + 13}" style="font-weight:${part ? 400 : 700}">${NAMES[name]}: ${percent(r.waits)} waiting, staleness ${round(r.mean, 2)}</text>
        ${left && many > 1 ? `<text y="${top + 29 + many * high}">slow</text>` : ""}<g clip-path="url(#sofar)"><path class="fill of-${name}" d="${paths[0]}"/><path fill="url(#hatch)" d="${paths[1]}"/><path class="hollow of-${name}" d="${paths[2]}"/><path class="marks" d="${marks}"/></g>`;
    });
    for (const t of Play.ticks(0,
      span).slice(1)) if (X(t) < w - 20) out += `<text class="soft" x="${X(t).toFixed(1)}" y="${2 * half + 12}" text-anchor="middle">${round(t, 2)} s</text>`;
    $(".timeline").innerHTML = `<svg viewBox="0 0 ${w} ${2 * half + 16}" width="${w}" height="${2 * half + 16}" role="img" aria-label="Timelines of ${NAMES[state.pick]} and ${NAMES[other]}; the numbers are in the table.">${out}</svg>`;
  }
  function charts() {
    const w = $(".loss").clientWidth, h = 260, r = results[state.pick], first = results[winner].reached, most = first < Infinity
      ? 3 * first : results.async.seconds[results.async.seconds.length - 1] || 1;
    const order = [...M.ALGORITHMS.filter((a) => a !== state.pick), state.pick], c = config();
    $(".loss").innerHTML = Play.chart({ w, h, x: [0, most], y: [0.01, 1.2], logY: true, xName: "seconds",
      yName: "loss, of the first", label: `${NAMES[state.pick]}: ${seconds(r)} to 3%`,
      series: [{ of: "one", points: [[0, 0.03], [most, 0.03]], dash: "1 3" },
        ...order.map((a) => ({ name: NAMES[a].replace("Synchronous", "Sync."), of: a, wide: a === state.pick ? 3.5 : 0,
        dash: { sync: "2 3", backup: "7 3", bounded: "7 3 2 3", dynsgd: "4 2", gossip: "9 4", alocal: "2 3", one: "1 4" }[a],
          points: results[a].seconds.map((t, i) => [t, results[a].losses[i]]) }))] });
    const many = r.stale.length - 1, size = Math.max(1, Math.ceil((many + 1) / 24)), bins = [];
    r.stale.forEach((x, tau) => (bins[Math.floor(tau / size)] = (bins[Math.floor(tau / size)] || 0) + x));
    const total = r.stale.reduce((a, b) => a + b, 0), high = Math.max(...bins.filter(Boolean)) / total;
    $(".t-stale").textContent = `Staleness of a gradient: ${NAMES[state.pick]}`
      + (many ? `, mean ${round(r.mean)}` : ": every one is fresh");
    $(".stale").innerHTML = Play.chart({ w, h, x: [0, Math.max(1, bins.length) * size], y: [0, high * 1.08], yShow: percent,
      xName: "updates by others since the pull", yName: "share", label: `mean ${round(r.mean)}, most ${many}`,
      series: bins.flatMap((x, i) => (x ? [{ of: state.pick, band: true, points: [[i * size, x / total, 0], [(i + 0.9) * size,
        x / total, 0]] }] : [])) });
    const known = (a) => (state.mean === MEASURED.mean
      && (MEASURED.rates[JSON.stringify({ cv: state.cv, slow: state.slow })] || {})[a]) || [];
    const ns = SPEC.n.values.filter((n) => n <= Math.max(16, 4 * state.n)),
      top = M.law("async", { ...c, n: ns[ns.length - 1], ps: 0 });
    $(".t-rate").textContent = "Gradients a second: closed form (lines), simulated (◆)"
      + (known("async").length ? ", measured (◇)" : "");
    $(".rates").innerHTML = Play.chart({ w, h, x: [1, ns[ns.length - 1]],
      y: [Math.min(0.6 * M.law("one", c), 0.6 * M.law("sync", { ...c, n: ns[ns.length - 1] })), 1.3 * top], logX: true,
      logY: true, xName: "workers", yName: "gradients/s", label: "Rates against the number of workers",
      series: ["async", "ring", "sync", "local"].flatMap((a) => [{ name: NAMES[a].replace("Synchronous", "Sync."), of: a,
        wide: a === state.pick ? 3 : 0, points: ns.map((n) => [n, M.law(a, { ...c, n })]) },
        { of: a, dots: "dot", points: [[state.n, results[a].rate, NAMES[a]]] }, { of: a, dots: "ring", points: known(a) }]) });
  }
  shows = M.ALGORITHMS.map((a) => [a, $(`[data-a=${a}] i`), $(`[data-a=${a}] output`), $(`[data-a=${a}]`)]);
  const redraw = () => { if (winner) picked(); };
  const set = Play.bind(page, state, SPEC, (name) => {
    chosen = name === "pick" || (name !== "preset" && (chosen || (!name && state.pick !== "")));
    if (name === "pick" && winner) picked();
    else restart();
  });
  page.addEventListener("click", ({ target: t }) => {
    if (!t.matches("button")) return;
    if (t.matches(".again")) return winner && ([started, clock, stats.done] = [performance.now(), still.matches ? 1 : 0, 0],
      frame(started));
    if (t.dataset.i) $(".verdict").scrollIntoView({ block: "nearest" });
    set({ ...BASE, pick: "", ...(t.dataset.i ? MEASURED.the_race[t.dataset.i].state : PRESETS[t.textContent]) }, t.dataset.i
      && MEASURED.the_race[t.dataset.i].state.pick ? "" : "preset");
  });
  Play.resized(page, redraw);
  chosen = state.pick !== "";
  restart();
})();
