// The model of "Memory and schedule": what a worker stores, and when each stage of a pipeline computes. As in
// Basics-Tutorial's Beyond-ZeRO and Data-and-Model-Parallelism, with which tests/site compares it.
"use strict";
(function (root) {
  const MODELS = { // blocks, width, heads, tokens of a sequence
    "6.4 billion": { L: 32, h: 4096, a: 32, s: 8192 }, "30 billion": { L: 48, h: 7168, a: 56, s: 8192 },
      "175 billion": { L: 96, h: 12288, a: 96, s: 2048 },
  };
  const parameters = (m) => 12 * m.L * m.h * m.h; // those of the blocks
  // Bytes a parameter, in mixed precision: w and g with 2 each, and 12 of the optimizer (Rajbhandari 2020).
  const states = (stage, dp) => ({ w: 2 / (stage > 2 ? dp : 1), g: 2 / (stage > 1 ? dp : 1),
    optimizer: 12 / (stage > 0 ? dp : 1) });

  // Bytes of a block's activations for b sequences: all, without the attention's scores, or the block's input only;
  // t workers divide each matrix, and with `divided` the tokens of norms and dropout, too. (Korthikanti 2022)
  function block(kept, m, b, t, divided) {
    const whole = divided ? 34 / t : 10 + 24 / t, scores = (5 * m.a * m.s) / m.h / t;
    return m.s * b * m.h * { "all": whole + scores, "no scores": whole, "inputs": 2 / (divided ? t : 1) }[kept];
  }
  // The order of a stage's passes: [F or B, micro-batch, chunk]. A place has v chunks of consecutive layers.
  function gpipe(k, K, M) {
    const all = (what) => Array.from({ length: M }, (_, m) => [what, m, 0]);
    return [...all("F"), ...all("B")];
  }
  function oneFOneB(k, K, M) {
    const ahead = Math.min(K - 1 - k, M), order = [];
    for (let m = 0; m < ahead; m++) order.push(["F", m, 0]);
    for (let m = 0; m < M - ahead; m++) order.push(["F", ahead + m, 0], ["B", m, 0]);
    for (let m = M - ahead; m < M; m++) order.push(["B", m, 0]);
    return order;
  }
  function interleaved(k, K, M, v) { // (Narayanan 2021): M is a multiple of K
    const total = M * v, ahead = Math.min(total, 2 * (K - k - 1) + (v - 1) * K), order = [];
    const pass = (what, i) => {
      const chunk = Math.floor((i % (K * v)) / K);
      order.push([what, Math.floor(i / (K * v)) * K + (i % K), what === "F" ? chunk : v - 1 - chunk]);
    };
    for (let i = 0; i < ahead; i++) pass("F", i);
    for (let i = ahead; i < total; i++) pass("F", i), pass("B", i - ahead);
    for (let i = total - ahead; i < total; i++) pass("B", i);
    return order;
  }
  const SCHEDULES = { gpipe, "1f1b": oneFOneB, interleaved };
  // Runs a schedule: a forward pass takes 1, a backward pass 2, messages none. passes: [place, what, micro-batch, chunk,
  // begin, end]; stored: the most that each place stores, in activations of its whole stage for one micro-batch.
  function run(name, K, M, v = 1) {
    const chunks = name === "interleaved" ? v : 1, left = Array.from({ length: K }, (_, k) => SCHEDULES[name](k, K, M, chunks)),
      last = K * chunks - 1;
    const stored = left.map((order) => {
      let now = 0, most = 0;
      for (const [what] of order) most = Math.max(most, (now += what === "F" ? 1 : -1));
      return most / chunks;
    });
    const end = new Map(), free = new Float64Array(K), passes = [], at = new Int32Array(K);
    for (let moved = true; moved;) {
      moved = false;
      for (let k = 0; k < K; k++) for (; at[k] < left[k].length; at[k]++) {
        const [what, m, chunk] = left[k][at[k]], j = chunk * K + k;
        const before = what === "F" ? (j ? `F${m} ${j - 1}` : "") : j < last ? `B${m} ${j + 1}` : `F${m} ${j}`;
        if (before && !end.has(before)) break;
        const begin = Math.max(free[k], before ? end.get(before) : 0);
        free[k] = begin + (what === "F" ? 1 : 2) / chunks;
        end.set(`${what}${m} ${j}`, free[k]);
        passes.push([k, what, m, chunk, begin, free[k]]);
        moved = true;
      }
    }
    const time = Math.max(...free);
    return { passes, stored, time, idle: 1 - (3 * M) / time, done: passes.length === 2 * K * M * chunks };
  }
  // What one worker stores, in bytes, and how long it is idle. c: {model, gpus, tp, pp, zero, batch, b, kept, divided,
  // schedule, v}. Returns {wrong}, in words, where the numbers do not divide.
  function plan(c) {
    const m = MODELS[c.model], dp = c.gpus / c.tp / c.pp, M = c.batch / dp / c.b, v = c.schedule === "interleaved" && c.pp > 1
      ? c.v : 1;
    if (dp < 1) return { wrong: `${c.tp} × ${c.pp} is more than ${c.gpus} GPUs` };
    if (!Number.isInteger(M)) return { wrong: `${c.batch} sequences are no multiple of ${dp} replicas × ${c.b}` };
    if (m.L % (c.pp * v)) return { wrong: `${m.L} blocks are no multiple of ${c.pp * v} parts` };
    if (v > 1 && M % c.pp) return { wrong: `interleaved: ${M} micro-batches are no multiple of ${c.pp} stages` };
    const pipe = run(v > 1 ? "interleaved" : c.schedule === "gpipe" && c.pp > 1 ? "gpipe" : "1f1b", c.pp, M, v),
      own = parameters(m) / c.tp / c.pp;
    const each = states(c.zero, dp), divided = c.divided === "yes", stage = m.L / c.pp,
      once = block(c.kept === "inputs" ? "no scores" : c.kept, m, c.b, c.tp, divided);
    const parts = { w: each.w * own, g: each.g * own, optimizer: each.optimizer * own,
      gathered: c.zero > 2 && dp > 1 ? (2 * 2 * parameters(m)) / m.L / c.tp : 0, // two blocks of w
      activations: pipe.stored[0] * stage * block(c.kept, m, c.b, c.tp, divided) + (c.kept === "inputs" ? once : 0) };
    return { m, dp, M, pipe, parts, bytes: Object.values(parts).reduce((a, x) => a + x, 0), idle: pipe.idle,
      work: c.kept === "inputs" ? 4 / 3 : 1 };
  }

  const START = { tp: 1, pp: 1, zero: 0, b: 1, kept: "all", divided: "no", schedule: "gpipe", v: 2 };
  // Puzzles: where one begins, what is asked for ([words, whether it holds]), and an answer.
  const PUZZLES = {
    "1: 6.4 billion, 8 GPUs": {
      start: { ...START, model: "6.4 billion", gpus: 8, batch: 16 },
      text: "Fit 6.4 billion parameters and sequences of 8,192 tokens into 8 × 80 GB, cut neither a matrix nor the model into stages, and compute nothing twice.",
      asks: [["at most 80 GB", (c, p) => p.bytes <= 80e9], ["no tensor or pipeline parallelism", (c) => c.tp * c.pp === 1],
        ["no block computed twice", (c) => c.kept !== "inputs"]],
      answer: { zero: 1, kept: "no scores" },
        why: "The scores take 344 GB, the rest of the activations 37: FlashAttention never stores the scores. Then ZeRO 1 divides the optimizer's 12 of 16 bytes.",
    },
    "2: 30 billion, slow links": {
      start: { ...START, model: "30 billion", gpus: 8, batch: 32 },
      text: "This model into 8 × 80 GB, at most 20% idle, with 32 sequences a step. The links are slow: only stages may be cut, and ZeRO stays at 0 or 1.",
      asks: [["at most 80 GB", (c, p) => p.bytes <= 80e9], ["at most 20% idle", (c, p) => p.idle <= 0.2],
        ["no tensor parallelism, ZeRO 0 or 1", (c) => c.tp === 1 && c.zero < 2]],
      answer: { pp: 8, schedule: "1f1b", kept: "inputs" },
        why: "Eight stages hold 59 GB of states each. 32 micro-batches leave 7/39 = 18% idle. GPipe would store all 32; 1F1B stores 8, and only their inputs fit.",
    },
    "3: 175 billion, 512 GPUs": {
      start: { ...START, model: "175 billion", gpus: 512, batch: 512, tp: 8 },
      text: "175 billion parameters on 512 × 80 GB, with 512 sequences a step: at most 4% idle, nothing computed twice, and ZeRO 0 or 1. Eight GPUs share a machine, so matrices are cut into 8 at most.",
      asks: [["at most 80 GB", (c, p) => p.bytes <= 80e9], ["at most 4% idle", (c, p) => p.idle <= 0.04],
        ["no block computed twice", (c) => c.kept !== "inputs"],
        ["tensor parallelism up to 8, ZeRO 0 or 1", (c) => c.tp <= 8 && c.zero < 2]],
      answer: { pp: 2, zero: 1, kept: "no scores", divided: "yes", schedule: "interleaved" },
        why: "By 1F1B two stages are idle for 1/17 = 6%. Interleaving two chunks in each halves that, but stores 2.5 micro-batches instead of 2: 87 GB. Divide the tokens of norms and dropout, too, and it is 60.",
    },
  };
  const api = { MODELS, SCHEDULES, PUZZLES, parameters, states, block, run, plan };
  if (typeof module !== "undefined") module.exports = api;
  else root.Schedule = api;
})(globalThis);
