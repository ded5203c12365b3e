// Who pushes when, how long a step takes, how fast the loss falls: tfrun/simulate and lab/measure/step_cost.py
// in JavaScript, for the pages of docs/site/play. tests/site compares both.
// node: require("./simulate.js").
"use strict";
(function (root) {
  // Random numbers: a stream for each worker, so that n changes nobody else's.
  function mix(x) {
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return x ^ (x >>> 16);
  }
  function stream(seed, k) { // mulberry32
    let state = mix(seed * 7919 + k * 2654435761 + 1);
    return () => {
      const a = (state = (state + 0x6d2b79f5) | 0);
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  const normal = (u) => Math.sqrt(-2 * Math.log(1 - u())) * Math.cos(2 * Math.PI * u());
  function gamma(u, shape) { // with the mean `shape`. (Marsaglia & Tsang 2000)
    if (shape === 1) return -Math.log(1 - u());
    if (shape < 1) return gamma(u, shape + 1) * Math.pow(1 - u(), 1 / shape);
    for (const d = shape - 1 / 3, c = 1 / Math.sqrt(9 * d); ;) {
      const x = normal(u), v = (1 + c * x) ** 3;
      if (v > 0 && Math.log(1 - u()) < (x * x) / 2 + d * (1 - v + Math.log(v))) return d * v;
    }
  }
  // Seconds of each update, [updates * n], by the gamma law with a coefficient of variation: 0 is
  // constant, 1 exponential. An update is T mini-batches; the last worker takes `slow` times as long.
  function stepTimes({ n, updates, cv, slow = 1, mean = 1, T = 1, seed = 1 }) {
    const times = new Float64Array(updates * n), shape = T / (cv * cv);
    for (let k = 0; k < n; k++) {
      const u = stream(seed, k), usual = mean * T * (k === n - 1 && n > 1 ? slow : 1);
      for (let i = 0; i < updates; i++) times[i * n + k] = usual * (cv ? gamma(u, shape) / shape : 1);
    }
    return times;
  }

  // schemes.py. A trace has an entry for each gradient: worker, pull, end (the gradient is there), push,
  // version and step. moved: seconds at which w moves.
  function queued(times, n, { pull = 0, push = 0, pause = 0, s = Infinity } = {}) { // s: as in bounded()
    const updates = times.length / n, size = times.length;
    const pulled = new Float64Array(size), ended = new Float64Array(size), pushed = new Float64Array(size);
    const follows = new Uint8Array(size), made = new Int32Array(n), last = new Float64Array(n);
    const at = new Float64Array(n), pushing = new Uint8Array(n), heap = new Int32Array(n), which = new Int32Array(size);
    const allMade = new Float64Array(updates + 1), count = new Int32Array(updates + 1), held = [];
    let waiting = 0, receiving = 0, sending = 0, low = 0, freed = 1, length = 0, limit = Infinity;
    const before = (a, b) => at[a] < at[b] || (at[a] === at[b] && a < b);
    function add(k, time, isPush) {
      at[k] = time; // no [a, b] = [c, d] here: it is slow until the function is compiled
      pushing[k] = isPush;
      let i = waiting++;
      for (; i && before(k, heap[(i - 1) >> 1]); i = (i - 1) >> 1) heap[i] = heap[(i - 1) >> 1];
      heap[i] = k;
    }
    function first() {
      const top = heap[0], k = heap[--waiting];
      let i = 0;
      for (let j; (j = 2 * i + 1) < waiting; heap[i] = heap[j], i = j) {
        if (j + 1 < waiting && before(heap[j + 1], heap[j])) j++;
        if (!before(heap[j], k)) break;
      }
      heap[i] = k;
      return top;
    }
    function begin(k, time) { // w is there
      const i = made[k] * n + k, then = allMade[Math.max(0, made[k] - s)];
      pulled[i] = time;
      follows[i] = pull + pause > 0 || (then > 0 && then >= last[k]) ? 0 : 1;
      add(k, time + times[i], 1);
    }
    const ask = pull ? (k, time) => add(k, time, 0) : begin; // nobody queues for what takes no time
    for (let k = 0; k < n; k++) ask(k, 0);
    count[0] = n;
    while (waiting && at[heap[0]] <= limit) {
      const k = first(), now = at[k], i = made[k] * n + k;
      if (!pushing[k]) {
        begin(k, (sending = Math.max(sending, now) + pull));
        continue;
      }
      const end = push ? (receiving = Math.max(receiving, now) + push) : now;
      ended[i] = now;
      pushed[i] = last[k] = end;
      which[length++] = i;
      count[made[k]]--, count[++made[k]]++;
      for (; low < updates && !count[low]; allMade[++low] = end);
      if (made[k] === updates) limit = Math.min(limit, end);
      else if (made[k] - s <= low) ask(k, end + pause);
      else (held[made[k]] = held[made[k]] || []).push(k);
      for (; freed <= low; freed++) for (const j of held[freed + s] || []) ask(j, Math.max(last[j] + pause, allMade[freed]));
    }
    for (let e = 1; e < length; e++) // in order of push; at one moment by update, then by worker
      for (let j = e; j && pushed[which[j]] === pushed[which[j - 1]] && which[j] < which[j - 1]; j--)
        [which[j], which[j - 1]] = [which[j - 1], which[j]];
    while (length && pushed[which[length - 1]] > limit) length--;
    const trace = { n, length, worker: new Int32Array(length), pull: new Float64Array(length), end: new Float64Array(length),
      push: new Float64Array(length), version: new Int32Array(length), step: new Int32Array(length) };
    for (let e = 0; e < length; e++) {
      const i = which[e];
      trace.worker[e] = i % n;
      trace.pull[e] = pulled[i];
      trace.end[e] = ended[i];
      trace.push[e] = pushed[i];
      trace.step[e] = e;
    }
    trace.moved = trace.push;
    const own = new Int32Array(n); // how many updates w had after the worker's own push
    for (let e = 0; e < length; e++) {
      trace.version[e] = follows[which[e]] ? own[trace.worker[e]] : countUntil(trace.push, trace.pull[e]);
      own[trace.worker[e]] = e + 1;
    }
    return trace;
  }
  function countUntil(sorted, x) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  const asynchronous = (times, n, pause = 0) => queued(times, n, { pause });
  const bounded = (times, n, s) => queued(times, n, { s });

  // A step ends with the `needed`-th of n gradients; w moves `way` seconds later. late: "dropped"
  // gradients are computed to their end, "cancelled" ones stop.
  function synchronous(times, n, needed = n, late = "dropped", way = 0) {
    const steps = times.length / n, free = new Float64Array(n), end = new Float64Array(n), made = new Int32Array(n);
    const out = { n, length: 0, together: true, needed, moved: new Float64Array(steps), worker: new Int32Array(steps * n),
      pull: new Float64Array(steps * n), push: new Float64Array(steps * n), step: new Int32Array(steps * n),
        version: new Int32Array(steps * n) };
    let now = 0;
    for (let step = 0; step < steps; step++) {
      for (let k = 0; k < n; k++) end[k] = Math.max(free[k], now) + times[made[k] * n + k];
      const sorted = needed < n && end.slice().sort();
      const last = sorted ? sorted[needed - 1] : end.reduce((a, b) => Math.max(a, b));
      let ties = sorted ? needed - sorted.indexOf(last) : n;
      for (let k = 0; k < n; k++) {
        const begins = Math.max(free[k], now), used = end[k] < last || (end[k] === last && ties-- > 0);
        const begun = begins < last;
        if (begun) made[k]++;
        if (late === "dropped" && begun) free[k] = end[k];
        if (!(late === "dropped" ? begun : used)) continue;
        const e = out.length++;
        out.worker[e] = k;
        out.pull[e] = begins;
        out.push[e] = end[k];
        out.step[e] = used ? step : -1;
        out.version[e] = step;
      }
      out.moved[step] = now = last + way;
    }
    for (const name of ["worker", "pull", "push", "step", "version"]) out[name] = out[name].subarray(0, out.length);
    return { ...out, end: out.push };
  }

  // Each worker averages with partner[i * n + k] after its i-th mini-batch; both are busy with it.
  function gossip(times, n, partner, exchange = 0) {
    const updates = times.length / n, size = times.length, made = new Int32Array(n), at = new Float64Array(n);
    const busy = new Float64Array(n), began = new Float64Array(n), late = new Int32Array(n), heap = [];
    const out = { n, pairs: true, worker: new Int32Array(size), partner: new Int32Array(size), late: new Int32Array(size),
      pull: new Float64Array(size), end: new Float64Array(size), push: new Float64Array(size) };
    const before = (a, b) => at[a] < at[b] || (at[a] === at[b] && a < b);
    function down(i) {
      for (let j; (j = 2 * i + 1) < n; i = j) {
        if (j + 1 < n && before(heap[j + 1], heap[j])) j++;
        if (!before(heap[j], heap[i])) break;
        const k = heap[i];
        heap[i] = heap[j];
        heap[j] = k;
      }
    }
    for (let k = 0; k < n; k++) [heap[k], at[k]] = [k, times[k]];
    for (let i = n >> 1; i-- > 0;) down(i);
    for (let e = 0; ; e++) {
      const k = heap[0], j = n > 1 ? partner[made[k] * n + k] : k, now = at[k], end = Math.max(now, busy[k], busy[j]) + exchange;
      busy[k] = busy[j] = end;
      out.worker[e] = k;
      out.partner[e] = j;
      out.pull[e] = began[k];
      out.end[e] = now;
      out.push[e] = began[k] = end;
      out.late[e] = late[k];
      late[k] = 0;
      late[j] += k === j ? 0 : 1;
      if (++made[k] === updates) {
        for (const name of ["worker", "partner", "late", "pull", "end", "push"]) out[name] = out[name].subarray(0, e + 1);
        return { ...out, length: e + 1, moved: out.push };
      }
      at[k] = end + times[made[k] * n + k];
      down(0);
    }
  }
  function staleness(trace) { // how many gradients were so many updates late
    const counts = [], { step, version, late } = trace;
    for (let e = 0; e < trace.length; e++) {
      if (step && step[e] < 0) continue;
      const tau = step ? step[e] - version[e] : late[e];
      counts[tau] = (counts[tau] || 0) + 1;
    }
    return counts;
  }
  function rate(trace) { // gradients a second that moved w, behind the step in which a tenth is reached
    const all = new Int32Array(trace.length), { step: steps } = trace;
    let many = 0;
    for (let e = 0; e < all.length; e++) if (!steps || steps[e] >= 0) all[many++] = steps ? steps[e] : e;
    const of = all.subarray(0, many);
    const step = of[Math.floor(of.length / 10)], first = countUntil(of, step) - 1, last = trace.moved[of[of.length - 1]];
    return (of.length - 1 - first) / (last - trace.moved[step]);
  }

  // Laws: the mean time of the needed-th of n gradients, in units of the mean of one.
  function logGamma(x) { // (Lanczos 1964)
    const c = [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 1.208650973866179e-3,
      -5.395239384953e-6];
    const sum = c.reduce((total, value, i) => total + value / (x + 1 + i), 1.000000000190015);
    return (x + 0.5) * Math.log(x + 5.5) - x - 5.5 + Math.log((2.5066282746310005 * sum) / x);
  }
  function longer(x, shape) { // P(a gamma-distributed time > x), with the mean `shape`
    if (x <= 0) return 1;
    const scale = Math.exp(shape * Math.log(x) - x - logGamma(shape));
    if (x < shape + 1) {
      let sum = 1 / shape, term = sum;
      for (let a = shape + 1; term > sum * 1e-13; a++) sum += term *= x / a;
      return 1 - Math.min(1, sum * scale);
    }
    let b = x + 1 - shape, c = 1e300, d = 1 / b, h = d;
    for (let i = 1; i < 400; i++) {
      const a = -i * (i - shape);
      [b, d, c] = [b + 2, 1 / (b + 2 + a * d), b + 2 + a / c];
      h *= d * c;
      if (Math.abs(d * c - 1) < 1e-12) break;
    }
    return scale * h;
  }
  function lastOf(n, needed, cv, T = 1, slow = 1) {
    if (!cv) return T * (needed === n && n > 1 ? slow : 1);
    const shape = T / (cv * cv), most = (T + 8 * cv * Math.sqrt(T) + cv * cv * (Math.log(n) + 25)) * slow, h = most / 3000;
    const atMost = (m, of, q) => { // P(at most m of so many are longer)
      let sum = 0, ways = 0;
      for (let j = 0; j <= m; ways += Math.log((of - j) / ++j))
        sum += Math.exp(ways + (j ? j * Math.log(q || 1e-300) : 0) + (of - j) * Math.log1p(-Math.min(q, 1 - 1e-16)));
      return sum;
    };
    let sum = 0;
    for (let x = h / 2; x < most; x += h) {
      const q = longer((x * shape) / T, shape), of = Math.max(1, n - 1);
      const own = n < 2 ? 0 : slow === 1 ? q : longer((x * shape) / (T * slow), shape);
      const all = (1 - own) * atMost(n - needed, of, q) + (needed < n ? own * atMost(n - needed - 1, of, q) : 0);
      sum += h * Math.max(0, 1 - all);
    }
    return sum;
  }

  // lab/measure/step_cost.py: seconds of communication. n workers, S bytes, B bytes a second, a seconds a message.
  const up2 = (n) => Math.ceil(Math.log2(n)), BACKWARD = 2 / 3;
  const cost = {
    between: (c, m) => [c + Math.max(0, m - BACKWARD * c), c + m],
    fitted: (c, m) => 1.065 * c + 0.28 * m,
    local: (c, m, T) => c + m / T,
    ring: (n, S, B, a = 0) => ((2 * (n - 1)) / n) * (S / B) + 2 * (n - 1) * a,
    halvingDoubling: (n, S, B, a = 0) => ((2 * (n - 1)) / n) * (S / B) + 2 * up2(n) * a,
    tree: (n, S, B, a = 0, pieces = 1) => (n > 1 ? 2 * (up2(n) + pieces - 1) * (S / pieces / B + a) : 0),
    hierarchical: (machines, inside, S, B, a = 0, Bi = Infinity, ai = 0) =>
      ((2 * (inside - 1)) / inside) * (S / Bi) + 2 * (inside - 1) * ai + cost.ring(machines, S, B, a),
    gather: (n, S, B, a = 0) => (n - 1) * (S / B + a),
    sharded: (n, S, B, a = 0, layers = 1) => ((3 * (n - 1)) / n) * (S / B) + 3 * (n - 1) * layers * a,
    psTogether: (n, S, B, a = 0, P = 1) => 2 * Math.max(n / P, 1) * (S / B) + 2 * a,
    psInTurn: (n, S, B, a = 0, P = 1) => Math.max((n + 1) / P, 2) * (S / B) + 2 * a,
    psOnTheWorkers: (n, S, B, a = 0, P = 1) => ((2 * (n - 1)) / P) * (S / B) + 2 * a,
    psAsynchronous(n, c, S, B, a = 0, P = 1) {
      const alone = c + (2 * S) / B + 2 * a;
      return [Math.max(alone / n, S / B / P), (c + cost.psTogether(n, S, B, a, P)) / n];
    },
    schemes({ n, c, S, B, a = 0, P = 1, T = 10, ratio = 100, inside = 8, Bi = Infinity }) { // [lowest, highest]
      const once = cost.ring(n, S, B, a), servers = [cost.psInTurn(n, S, B, a, P), cost.psTogether(n, S, B, a, P)];
      return {
        "ps, asynchronous": cost.psAsynchronous(n, c, S, B, a, P).map((s) => n * s),
        "ps, synchronous": servers.sort((x, y) => x - y).map((m) => c + m),
        "ring": cost.between(c, once),
        "halving and doubling": cost.between(c, cost.halvingDoubling(n, S, B, a)),
        "tree, 64 pieces": cost.between(c, cost.tree(n, S, B, a, 64)),
        "hierarchical": cost.between(c, cost.hierarchical(Math.ceil(n / inside), Math.min(n, inside), S, B, a, Bi)),
        "ZeRO 3": cost.between(c, cost.sharded(n, S, B, a)),
        [`ring, ${T} local steps`]: [cost.between(T * c, once)[0] / T, cost.local(c, once, T)],
        [`ring, 1/${ratio} of the bytes, added up`]: cost.between(c, cost.ring(n, S / ratio, B, a)),
        [`1/${ratio} of the bytes, gathered`]: cost.between(c, cost.gather(n, S / ratio, B, a)),
      };
    },
    firstToChange({ n, c, S, B, a = 0, T = 10, ratio = 100 }) { // how many times as fast a ring's step becomes, unhidden
      const now = c + cost.ring(n, S, B, a), ring = (...x) => cost.ring(...x);
      const changed = {
        "a link twice as fast": c + ring(n, S, 2 * B, a),
        "a tenth of the latency": c + ring(n, S, B, a / 10),
        "full overlap": cost.between(c, ring(n, S, B, a))[0],
        [`${T} local steps`]: cost.local(c, ring(n, S, B, a), T),
        [`1/${ratio} of the bytes`]: c + ring(n, S / ratio, B, a),
        "halving and doubling": c + cost.halvingDoubling(n, S, B, a),
        "a worker twice as fast": c / 2 + ring(n, S, B, a),
      };
      return Object.entries(changed).map(([name, then]) => [name, now / then]).sort((x, y) => y[1] - x[1]);
    },
  };
  const api = { stream, normal, stepTimes, queued, asynchronous, bounded, synchronous, gossip, staleness, rate, longer, lastOf,
    cost };
  if (typeof module !== "undefined") module.exports = api;
  else root.Simulate = api;
})(globalThis);
