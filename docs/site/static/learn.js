// What the race's workers learn: a trace of simulate.js drives real updates, as in lab/measure/learn.py.
"use strict";
(function (root) {
  const S = typeof require === "function" ? require("./simulate.js") : root.Simulate;
  const D = 50, SHARES = 64, NOISE = 2, APART = 0.35, TARGET = 0.03, SEEDS = [2, 3, 4, 5, 6];
  const ALGORITHMS = ["one", "ring", "sync", "backup", "bounded", "async", "dynsgd", "gossip", "local", "alocal"];

  // Least squares with 50 parameters; each worker has its own share of the data, so its own curvatures and its own
  // minimum. The loss is that of all shares together, above its minimum.
  const u = S.stream(5, 0), table = Float32Array.from({ length: 65536 }, () => S.normal(u));
  const CURVE = new Float64Array(SHARES * D), PLACE = new Float64Array(SHARES * D);
  for (let i = 0; i < SHARES * D; i++) {
    CURVE[i] = Math.pow(0.02, (i % D) / (D - 1)) * Math.exp(APART * S.normal(u) - (APART * APART) / 2);
    PLACE[i] = APART * S.normal(u);
  }
  function problem(n) {
    const shares = Math.min(n, SHARES), curve = new Float64Array(D), best = new Float64Array(D), w = new Float64Array(D);
    for (let i = 0; i < D; i++) {
      for (let k = 0; k < shares; k++) {
        curve[i] += CURVE[k * D + i] / shares;
        best[i] += (CURVE[k * D + i] * PLACE[k * D + i]) / shares;
      }
      best[i] /= curve[i];
      w[i] = best[i] + (i % 2 ? 2 : -2);
    }
    const loss = (v) => {
      let sum = 0;
      for (let i = 0; i < D; i++) sum += curve[i] * (v[i] - best[i]) * (v[i] - best[i]);
      return sum / 2;
    };
    return { shares, curve, best, w, loss, first: loss(w), root: curve.map(Math.sqrt) };
  }

  // Functions of their own: here V8 takes half the time that it takes for the same loop in follow().
  function descend(v, k, scale, shaken, p, from, at) { // v <- v - scale * a gradient of share k at `from`
    for (let i = 0, o = k * D; i < D; i++)
      v[i] -= scale * (CURVE[o + i] * (from[at + i] - PLACE[o + i]) + shaken[i] * table[(p + i) & 65535]);
  }
  function average(all, read, own, k, j) {
    for (let i = 0; i < D; i++) {
      const middle = (all[k + i] + all[j + i]) / 2;
      all[j + i] = middle;
      read[k + i] = all[k + i] = middle + own[i];
    }
  }

  // Follows a trace at a learning rate: {seconds, losses, reached}; reached: when the loss is TARGET of the first.
  // c: {n, mean, T, noise, seed}. The loss is looked at once in the time of a gradient, so that all are judged alike.
  function* follow(name, t, c, rate, limit = Infinity) {
    const { n, mean } = c, { shares, curve, best, w, loss, first, root } = problem(n), pick = S.stream(c.seed, 1 << 20);
    const seconds = [0], losses = [1], local = name === "local" || name === "alocal" ? c.T : 1, noise = c.noise ?? NOISE;
    const own = new Float64Array(D), shaken = root.map((r) => r * (noise / (t.together ? Math.sqrt(n / shares) : 1)));
    let smooth = 1, reached = Infinity;
    const note = (time) => {
      const since = time - seconds[seconds.length - 1];
      if (since < 0.999 * mean) return false;
      const now = loss(w) / first;
      smooth = now + (smooth - now) * Math.pow(0.6, since / mean);
      seconds.push(time);
      losses.push(now);
      if (smooth < TARGET && reached === Infinity) reached = time;
      return !(now < 20) || time > Math.min(limit, 1.3 * reached);
    };
    const step = (v, k, scale, from = v, at = 0) => descend(v, k % shares, scale, shaken, (pick() * 65536) | 0, from, at);
    let move; // w's next move, by update e
    if (t.together && local > 1) { // each share goes its own way, then w is the mean
      const sum = new Float64Array(D);
      move = () => {
        sum.fill(0);
        for (let k = 0; k < shares; k++) {
          own.set(w);
          for (let i = 0; i < local; i++) step(own, k, rate);
          for (let i = 0; i < D; i++) sum[i] += own[i] / shares;
        }
        w.set(sum);
      };
    } else if (t.together) { // the mean of `needed` gradients, of the shares that they are of
      const count = new Float64Array(shares);
      let e = 0;
      move = (s) => {
        count.fill(0);
        if (t.needed < n) for (; e < t.length && (t.step[e] === s
          || t.step[e] < 0); e++) if (t.step[e] === s) count[t.worker[e] % shares]++;
        own.set(w);
        if (t.needed === n) for (let i = 0; i < D; i++) w[i] -= rate * curve[i] * (own[i] - best[i]);
        else for (let k = 0; k < shares; k++) if (count[k])
          for (let i = 0; i < D; i++) w[i] -= ((rate * count[k]) / t.needed) * CURVE[k * D + i] * (own[i] - PLACE[k * D + i]);
        const p = (pick() * 65536) | 0, spread = (rate * noise) / Math.sqrt(t.needed);
        for (let i = 0; i < D; i++) w[i] -= spread * root[i] * table[(p + i) & 65535];
      };
    } else if (t.pairs) { // AD-PSGD: w_k, w_j <- their mean; w_k <- w_k - rate * g(what w_k was); the loss is that of worker 0, as in the example
      const all = new Float64Array(n * D);
      for (let k = 0; k < n; k++) all.set(w, k * D);
      const read = Float64Array.from(all);
      move = (e) => {
        const k = t.worker[e] * D, j = t.partner[e] * D;
        own.fill(0);
        step(own, t.worker[e], rate, read, k);
        average(all, read, own, k, j);
        if (k === 0 || j === 0) w.set(all.subarray(0, D));
      };
    } else { // each push moves w by what its worker's copy has moved
      const copies = new Float64Array(n * D), head = new Int32Array(t.length).fill(-1), next = new Int32Array(t.length);
      for (let e = t.length; e-- > 0; head[t.version[e]] = e) next[e] = head[t.version[e]];
      move = (made) => {
        for (let e = head[made]; e >= 0; e = next[e]) copies.set(w, t.worker[e] * D);
        const k = t.worker[made], at = k * D, tau = made - t.version[made];
        if (local === 1) return step(w, k, rate / (name === "dynsgd" ? tau + 1 : 1), copies, at);
        own.set(copies.subarray(at, at + D));
        for (let i = 0; i < local; i++) step(own, k, rate);
        for (let i = 0; i < D; i++) w[i] += own[i] - copies[at + i];
      };
    }
    for (let e = 0, often = !t.together ? 400 : local > 1 ? 1 : 50; e < t.moved.length; e++) {
      move(e);
      if (note(t.moved[e])) break;
      if (e % often === often - 1) yield;
    }
    return { seconds, losses, reached, last: losses[losses.length - 1], stable: losses[losses.length - 1] < 20 };
  }

  const backups = (n) => (n < 2 ? 0 : Math.max(1, Math.round(n / 25)));
  const kept = new Map(); // traces and times: algorithms share them
  function once(key, make) {
    if (kept.size > 40) kept.clear();
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key);
  }
  const exchange = (name, { n, ps }) => ps && (/ring|local/.test(name) ? S.cost.ring : S.cost.psTogether)(n, ps, 1);
  // The trace of an algorithm. c: {n, cv, slow, ps, T, s, mean, seed}; ps: seconds that w takes over a link.
  function trace(name, c) {
    const { n, ps, cv, slow, mean, seed } = c, T = name === "local" || name === "alocal" ? c.T : 1;
    if (name === "one") return S.synchronous(S.stepTimes({ cv, mean, seed, n: 1, updates: 3200 }), 1);
    const rounds = Math.max(n > 512 ? (T > 1 ? 10 : 32) : name === "gossip" ? 60 : 30, 4000 / n);
    const steps = /ring|^sync|backup|^local/.test(name), updates = Math.ceil((steps ? 100 + 3000 / n : rounds) / (T > 1 ? 2 : 1));
    const key = JSON.stringify([n, cv, slow, mean, seed, T, updates]),
      times = once(key, () => S.stepTimes({ n, cv, slow, mean, seed, updates, T }));
    if (steps) return S.synchronous(times, n, name === "backup" ? n - backups(n) : n, "dropped", exchange(name, c));
    if (name === "gossip") {
      const draws = Array.from({ length: n }, (_, k) => S.stream(c.seed + 99, k));
      return S.gossip(times, n, new Int32Array(times.length).map(
        (_, i) => ((i % n) + (draws[i % n]() < 0.5 ? 1 : n - 1)) % n), ps);
    }
    const ahead = name === "bounded" ? c.s : Infinity;
    return once(key + [ps, ahead], () => S.queued(times, n, { pull: ps, push: ps, s: ahead }));
  }
  function law(name, c) { // gradients a second: exact where a message takes no time; else, without a step in common, the most
    const { n, ps, mean, cv, slow } = c, T = name === "local" || name === "alocal" ? c.T : 1;
    if (name === "one") return 1 / mean;
    if (name === "bounded" || name === "backup") return NaN;
    if (/ring|^sync|^local/.test(name)) return (n * T) / (mean * S.lastOf(n, n, cv, T, slow) + exchange(name, c));
    const way = name === "gossip" ? ps : 2 * ps, one = 1 / (T * mean + way), last = 1 / (T * mean * (n > 1 ? slow : 1) + way);
    return T * Math.min((n - 1) * one + last, !ps ? Infinity : name === "gossip" ? n / 2 / ps : 1 / ps);
  }
  // The best of learning rates that fall by the root of 2, found with one seed; its seconds are medians over five others.
  function* compete(name, c) {
    const one = { ...c, n: name === "one" ? 1 : c.n }, tuned = yield* made(name, { ...one, seed: 1 });
    let best = null;
    if (!c.rate) {
      const late = (4 / (tuned.mean + 1)) * (name === "alocal" ? 1 / c.T : 1);
      const most = name === "dynsgd" ? 8 : tuned.together || tuned.pairs ? 2 : Math.min(2, late);
      for (let rate = most; rate > 1e-6; rate /= Math.SQRT2) {
        const run = yield* follow(name, tuned, one, rate, best ? best.reached : Infinity), better = best
          && run.reached < best.reached;
        if (!best || better || (best.reached === Infinity && run.last < best.last)) best = { ...run, rate };
        else if (best.last < 1) break;
      }
    }
    const learningRate = c.rate || best.rate, runs = [];
    for (const seed of SEEDS.slice(0, one.n > 2048 ? 1 : one.n > 512 ? 3 : 5)) {
      const t = yield* made(name, { ...one, seed });
      runs.push({ ...(yield* follow(name, t, { ...one, seed }, learningRate)), rate: t.rate });
    }
    runs.sort((a, b) => a.reached - b.reached);
    const all = runs.map((r) => r.reached), rates = runs.map((r) => r.rate).sort((a, b) => a - b), middle = runs.length >> 1;
    return { ...tuned, ...runs[middle], name, rate: rates[middle], rates, low: all[0], high: all[all.length - 1], learningRate,
      law: law(name, one) };
  }
  function* made(name, c) { // a trace, and what is counted of it
    const t = trace(name, c), stale = S.staleness(t), T = name === "local" || name === "alocal" ? c.T : 1;
    yield;
    let busy = 0, total = 0;
    stale.forEach((many, tau) => (total += many * tau));
    const { step, end, pull, moved } = t, last = moved[moved.length - 1];
    for (let e = 0; e < t.length; e++) if (!step || step[e] >= 0) busy += end[e] - pull[e];
    return { ...t, stale, T, mean: total / t.length, rate: T * S.rate(t), waits: Math.max(0, 1 - busy / last / c.n) };
  }
  const finish = (generator) => {
    for (let r; ;) if ((r = generator.next()).done) return r.value;
  };
  const api = { ALGORITHMS, TARGET, SEEDS, CURVE, PLACE, problem, follow, backups, trace, made, law, compete, finish };
  if (typeof module !== "undefined") module.exports = api;
  else root.Learn = api;
})(globalThis);
