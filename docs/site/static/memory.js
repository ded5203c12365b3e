// The page "Memory and schedule": bars of bytes, the pipeline as a picture, three puzzles. The numbers: schedule.js.
"use strict";
(function () {
  const { MODELS, PUZZLES, plan, run } = Schedule, { round, percent, chart } = Play, page = document.getElementById("memory"),
    $ = (q) => page.querySelector(q);
  const GB = (x) => `${round(x / 1e9)} GB`, ROOM = 80e9, FREE = "Free play", names = [...Object.keys(PUZZLES), FREE];
  const PARTS = { w: ["ring", "w"], g: ["sync", "gradients"], optimizer: ["bounded", "optimizer"],
    gathered: ["gossip", "two gathered blocks"], activations: ["async", "activations"] };
  const powers = (most) => Array.from({ length: Math.log2(most) + 1 }, (_, i) => 2 ** i);
  const SPEC = { puzzle: { values: [0, 1, 2, 3], show: String }, zero: { values: [0, 1, 2, 3], show: String },
    tp: { values: powers(8), show: String }, pp: { values: powers(16), show: String },
    b: { values: powers(8), show: String }, v: { values: [2, 3, 4, 6], show: String },
      gpus: { values: powers(4096), show: (x) => x.toLocaleString("en") },
      batch: { values: powers(4096), show: (x) => x.toLocaleString("en") },
    kept: null, divided: null, schedule: null, model: null };
  const state = { puzzle: 1, ...PUZZLES[names[0]].start };

  function stack(c, y, w, left, scale, height) { // a bar of one GPU's bytes
    const p = plan(c);
    if (p.wrong) return "";
    let x = left, out = "";
    for (const part in PARTS) {
      const wide = p.parts[part] * scale;
      if (wide > 0.2) out += `<rect class="fill of-${PARTS[part][0]}" x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.3, Math.min(wide, w - 92 - x) - 0.8).toFixed(1)}" height="${height}"/>`;
      x = Math.min(x + wide, w - 92);
    }
    return out + `<text x="${x + 5}" y="${y + height - 6}">${x >= w - 92 ? "▸ " : ""}${GB(p.bytes)} ${p.bytes <= ROOM ? "✓" : ""}</text>`;
  }
  function bars(w) {
    const left = 66, all = [0, 1, 2, 3].map((zero) => plan({ ...state, zero })),
      most = Math.max(ROOM * 1.15, Math.min(6 * ROOM, Math.max(...all.map((p) => p.bytes || 0)))), scale = (w - left - 92) / most;
    const rows = [0, 1, 2,
      3].map((zero) => `<text x="0" y="${zero * 32 + 21}" style="font-weight:${zero === state.zero ? 700 : 400}">ZeRO ${zero}${zero === state.zero ? " ◂" : ""}</text>` + stack({ ...state, zero }, zero * 32 + 5, w, left, scale, 24)).join("");
    return `<svg viewBox="0 0 ${w} 150" width="${w}" height="150" role="img" aria-label="Bytes of one GPU by ZeRO stage; the numbers are in the table.">${rows}<path class="room" d="M${left + ROOM * scale} 0V132"/><text class="soft" x="${left + ROOM * scale}" y="146" text-anchor="middle">80 GB</text></svg>`;
  }
  function pipe(p, w) {
    const K = state.pp, high = Math.max(10, Math.min(30, 210 / K)), left = 58, right = 76, X = (t) => left
      + ((w - left - right) * t) / p.pipe.time, paths = {}, one = X(1) - X(0), numbers = [];
    for (const [k, what, m, chunk, begin, end] of p.pipe.passes) {
      const y = k * high + 2, kind = what + (chunk % 2);
      paths[kind] = (paths[kind] || "")
        + `M${X(begin).toFixed(1)} ${y}H${(X(end) - Math.min(1, one / 4)).toFixed(1)}v${high - 3}H${X(begin).toFixed(1)}z`;
      if (X(end) - X(begin) > 17
        && high > 15) numbers.push(`<text class="in" x="${((X(begin) + X(end)) / 2).toFixed(1)}" y="${y + high / 2 + 3}" text-anchor="middle">${m + 1}</text>`);
    }
    const labels = p.pipe.stored.map((s,
      k) => `<text x="0" y="${k * high + high / 2 + 5}">stage ${k + 1}</text><text class="soft" x="${w - right + 6}" y="${k * high + high / 2 + 5}">stores ${round(s)}</text>`).join("");
    return `<svg viewBox="0 0 ${w} ${K * high + 6}" width="${w}" height="${K * high + 6}" role="img" aria-label="The pipeline's schedule: ${percent(p.idle)} idle"><rect class="empty" x="${left}" y="2" width="${w - left - right}" height="${K * high - 3}"/>
      ${Object.entries(paths).map(([kind, d]) => `<path class="pass ${kind}" d="${d}"/>`).join("")}${numbers.join("")}${labels}</svg>`;
  }
  function draw() {
    const p = plan(state), puzzle = PUZZLES[names[state.puzzle - 1]], w = Math.max(300, $(".bars").clientWidth),
      half = Math.max(300, $(".idle").clientWidth);
    [...$(".presets").children].forEach((b, i) => b.setAttribute("aria-pressed", i + 1 === (state.puzzle || names.length)));
    for (const name of ["model", "gpus", "batch"]) $(`[name=${name}]`).disabled = Boolean(puzzle);
    for (const name of ["task", "asks", "solution"]) $("." + name).hidden = !puzzle;
    if (puzzle) {
      const held = puzzle.asks.map(([words, holds]) => [words, !p.wrong && holds(state, p)]);
      $(".task").innerHTML = `<b>${puzzle.text}</b>`;
      $(".asks").innerHTML = held.map(([words, ok]) => `<li class="${ok ? "ok" : "no"}">${ok ? "✓" : "✗"} ${words}</li>`).join("")
        + (held.every(([, ok]) => ok) ? "<li class='ok'><b>Solved.</b></li>" : "");
    }
    $(".verdict").innerHTML = p.wrong ? `<b>This does not work:</b> ${p.wrong}.`
      : `<b>${GB(p.bytes)} on ${state.pp > 1 ? "a GPU of the first stage" : "each GPU"}${p.bytes > ROOM ? ": too much" : ""}; ${state.pp > 1 ? percent(p.idle) + " idle" : "no pipeline, so nobody waits for a stage"}.</b>
      ${p.dp} replica${p.dp > 1 ? "s" : ""} × ${state.pp} stage${state.pp > 1 ? "s" : ""} × ${state.tp} GPU${state.tp > 1 ? "s" : ""} a matrix; ${p.M} micro-batch${p.M > 1 ? "es" : ""} a step in each. ${p.work > 1 ? "Blocks are computed again: four thirds of the work." : ""}`;
    for (const name of ["bars", "pipe", "scroll"]) $("." + name).style.opacity = p.wrong ? 0.25 : 1;
    $(".parts").innerHTML = Object.values(PARTS).map(([of, name]) => `<i style="background:var(--${of})"></i> ${name}`).join(" ");
    if (p.wrong) return;
    $(".bars").innerHTML = bars(w);
    $(".t-pipe").textContent = state.pp === 1 ? "One stage: no pipeline"
      : `A step of ${state.pp} stages: forward (narrow), backward (wide), idle (empty): ${percent(p.idle)}`;
    $(".pipe").innerHTML = state.pp > 1 && p.M * state.pp <= 4096 ? pipe(p, w) : "";
    const K = Math.max(2, state.pp), Ms = powers(64).filter((M) => M * K <= 512),
      kinds = [["gpipe", "GPipe, 1F1B", "ring"], ["interleaved", "interleaved", "async"]];
    $(".idle").innerHTML = chart({ w: half, h: 250, x: [1, 128], y: [0, 1], logX: true, yShow: percent, xName: "micro-batches",
      yName: `idle, ${K} stages`, label: "Idle share against micro-batches",
      series: [...kinds.map(([kind, name, of]) => ({ name, of, wide: 2.5,
        points: Ms.filter((M) => kind === "gpipe" || M % K === 0).map((M) => [M, run(kind, K, M, state.v).idle]) })),
        { of: "async", dots: "dot", points: state.pp > 1 ? [[p.M, p.idle, "yours"]] : [] },
          { of: "ring", dots: "ring", points: MEASURED.pipeline.filter(([, k]) => k === K).map(([name, , M, idle]) => [M, idle,
          `measured, ${name}`]) }] });
    $(".scroll").innerHTML = Play.table(["ZeRO", ...Object.values(PARTS).map(([, name]) => name), "all", "idle",
      "stored, each stage"], [0, 1, 2, 3].map((zero) => [zero, plan({ ...state, zero })]).map(([zero,
      r]) => ({ first: zero === state.zero,
      cells: [zero, ...Object.keys(PARTS).map((part) => round(r.parts[part] / 1e9)), GB(r.bytes), percent(r.idle),
        r.pipe.stored.map((s) => round(s)).join(" ")] })), "The same numbers, GB of one GPU.");
  }
  $(".presets").innerHTML = names.map((p) => `<button type="button">${p}</button>`).join("");
  $("[name=model]").innerHTML = Object.keys(MODELS).map((m) => `<option>${m}</option>`).join("");
  page.hidden = false;
  const set = Play.bind(page, state, SPEC, (name) => {
    if (name !== "answer") $(".solution span").textContent = "";
    draw();
  });
  page.addEventListener("click", ({ target: t }) => {
    if (!t.matches("button")) return;
    if (t.matches(".answer")) {
      const { answer, start, why } = PUZZLES[names[state.puzzle - 1]];
      set({ ...start, ...answer }, "answer");
      $(".solution span").textContent = why;
    } else if (t.textContent === FREE) set({ puzzle: 0 });
    else set({ puzzle: names.indexOf(t.textContent) + 1, ...PUZZLES[t.textContent].start });
  });
  Play.resized(page, draw);
})();
