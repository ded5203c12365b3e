# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ring all-reduce
# The mean of all gradients without a parameter server: each worker sends to its right neighbour and
# receives from its left one, until everybody has the sum.
#
# After this notebook you can:
# - carry out scatter-reduce and all-gather, step by step, and say which chunk is where;
# - count the bytes that a worker moves, and compare them with those of a parameter server;
# - run the ring on four TensorFlow devices, and read the bytes from the run metadata;
# - say where a ring wins, and where its many steps cost more than it saves.
#
# 20 minutes. Before this one: [Synchronous-Replicas](Synchronous-Replicas.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or its log fills the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it announces itself
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the four devices are four servers on the CPU
import queue
import socket
import threading
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()  # a read is a copy, never an alias of the buffer
plt.rcParams["axes.titlesize"] = 10

# %% [markdown]
# ## The task
# Four workers, `N` = 4. Worker `k` has a vector, its gradient, in four chunks: `a`, `b`, `c` and
# `d`. In the end each worker must have the sum of the four vectors. In short: `a0` is the chunk `a`
# of worker 0; `a01` is `a0 + a1`; `a*` is the sum over all workers.
#
# The first half is the **scatter-reduce**. All indices are mod `N`:
# ```
# s = 0 ... N - 2:  worker k sends chunk k - s,  adds what it receives to its own chunk k - s - 1
# ```
# **Predict:** which chunk does worker 0 send in the step s = 0, and what does worker 1 have then?
# After three steps, where is `a*`?

# %%
N = 4

def scatter_reduce(table, s):
    """One step. table[k][c]: whose parts of chunk c worker k has. Returns the table and the cells
    in which something has come."""
    new = [list(row) for row in table]
    for k in range(N):
        c = (k - s) % N
        new[(k + 1) % N][c] = table[(k + 1) % N][c] | table[k][c]
    return new, {((k + 1) % N, (k - s) % N) for k in range(N)}

start = [[{k} for c in range(N)] for k in range(N)]
tables = [("start", start, set())]
for s in range(N - 1):
    tables.append(("scatter-reduce s = %d" % s, *scatter_reduce(tables[-1][1], s)))

# %%
def draw(tables):
    """Rows: workers; columns: chunks; the darker, the more parts; framed: what has just come."""
    figure, panels = plt.subplots(1, 4, figsize=(8, 2.4), dpi=80, layout="tight")
    for panel, (title, table, come) in zip(panels, tables):
        panel.imshow([[len(parts) for parts in row] for row in table], "Greens", vmin=0, vmax=6)
        for k, c in np.ndindex(N, N):
            parts = "".join(map(str, sorted(table[k][c])))
            text = "abcd"[c] + ("*" if len(parts) == N else parts)
            panel.text(c, k, text, ha="center", va="center", fontsize=9)
        for k, c in come:
            panel.add_patch(plt.Rectangle((c - 0.45, k - 0.45), 0.9, 0.9, fill=False, lw=2))
        panel.set(xticks=[], yticks=range(N), xlabel="chunk", ylabel="worker", title=title)
    plt.show()

draw(tables)

# %% [markdown]
# In each step a chunk moves one place to the right and collects what that worker has of it. After
# `N` − 1 steps worker `k` has the whole sum of one chunk, `k + 1`: worker 3 has `a*`. The work of
# adding is shared evenly.
#
# The second half is the **all-gather**: the sums go around once more, and take the place of what
# was there.
# ```
# s = 0 ... N - 2:  worker k sends chunk k + 1 - s,  puts what it receives into chunk k - s
# ```
# **Predict:** how many steps until all have all?

# %%
def all_gather(table, s):
    new = [list(row) for row in table]
    for k in range(N):
        c = (k + 1 - s) % N
        new[(k + 1) % N][c] = table[k][c]
    return new, {((k + 1) % N, (k + 1 - s) % N) for k in range(N)}

for s in range(N - 1):
    tables.append(("all-gather s = %d" % s, *all_gather(tables[-1][1], s)))
draw(tables[N - 1:])
assert all(parts == set(range(N)) for row in tables[-1][1] for parts in row)

# %% [markdown]
# ## The same with arrays, in four threads
# Now as each worker sees it: it knows its number `k`, its chunks, and how to exchange one with its
# neighbours. This is `all_reduce` of the script [Ring-AllReduce](../Ring-AllReduce/), where
# `exchange` uses sockets between processes; here it uses queues between threads. A queue takes a
# chunk at once. A socket may not, if it is long: so the script sends while it receives. The vectors
# are real gradients: of a linear classifier of digits, each worker with a fourth of the images.
#
# **Predict:** `S` is the size of the vector, 640 numbers or 2,560 bytes. How many bytes does each
# worker send?

# %%
def all_reduce(x, k, exchange):
    """Makes x, a flat vector, the sum of the x of all workers. All call it at once."""
    chunk = np.array_split(x, N)  # views: to change a chunk is to change x
    for s in range(N - 1):  # scatter-reduce
        chunk[(k - s - 1) % N] += exchange(chunk[(k - s) % N])
    for s in range(N - 1):  # all-gather
        chunk[(k - s) % N][:] = exchange(chunk[(k + 1 - s) % N])

images, labels = load_digits(return_X_y=True)
x, y = images[:1796] / 16, np.eye(10)[labels[:1796]]  # as many as four can share

def gradient(rows):
    """Of the mean cross-entropy at w = 0, where each digit has the probability 1/10."""
    return (x[rows].T @ (0.1 - y[rows]) / len(x[rows])).astype(np.float32).reshape(-1)

# %%
def in_threads(work, vectors):
    """work(x, k, exchange) for each vector, in threads; returns the bytes that each has sent."""
    mail, sent = [queue.Queue() for _ in vectors], [0] * len(vectors)
    def exchange(k, out):
        sent[k] += out.nbytes
        mail[(k + 1) % len(mail)].put(out.copy())  # to the right neighbour
        return mail[k].get(timeout=10)  # from the left one
    threads = [threading.Thread(target=work, args=(x, k, lambda out, k=k: exchange(k, out)),
                                name="ring %d" % k, daemon=True) for k, x in enumerate(vectors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return sent

# %%
vectors = [gradient(slice(k, None, N)) for k in range(N)]  # worker k has every fourth image
S = vectors[0].nbytes
sent = in_threads(all_reduce, vectors)
mean = [vector / N for vector in vectors]
print("S = %d bytes, each worker has sent %s, 2 (N - 1) / N * S = %d" % (
    S, sorted(set(sent)), 2 * (N - 1) * S // N))
correct = np.allclose(mean[0], gradient(slice(None)), atol=1e-6)
same = all(np.array_equal(mean[0], other) for other in mean)
print("the mean is the gradient on all images:", correct)
print("all have the same, to the last bit:", same)
assert correct and same and set(sent) == {2 * (N - 1) * S // N}

# %% [markdown]
# In each half a worker sends `N` − 1 chunks of `S / N` bytes: `2 (N - 1) / N * S` together. That is
# never `2 S`, however many they are; with less it cannot be done (Patarasuk, Yuan 2009, Bandwidth
# Optimal All-reduce Algorithms, JPDC 69(2)). And a chunk is summed up once, by one after the other,
# and then copied: so all have the same sum to the last bit, and `w` stays the same everywhere.
#
# ## On four TensorFlow devices
# Now four servers, and a ps to compare with. A graph in which a chunk is on one device and is
# needed on another makes TensorFlow send it; the run metadata say how many bytes of tensors went
# from where to where.
#
# **Predict:** with a ps, each worker pushes its gradient and pulls `w`. How many bytes go through
# the ps? Through a worker of the ring?

# %%
os.environ["TF_GRPC_REUSE_PORT"] = "1"  # a server may listen on a port that is held for it
sockets = [socket.socket() for _ in range(N + 1)]
for s in sockets:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", 0))  # a free port, which is held until the end
addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
ps = tf.train.Server(cluster, job_name="ps", task_index=0)  # it ends with the kernel
servers = [tf.train.Server(cluster, job_name="worker", task_index=k) for k in range(N)]
print({job: cluster.num_tasks(job) for job in cluster.jobs})

# %%
WORKER = ["/job:worker/task:%d" % k for k in range(N)]
BOUNDED = tf.ConfigProto(operation_timeout_in_ms=20000)  # nothing waits for ever

def gradients_on_workers():
    """On each worker a local variable that holds its gradient, and the chunks of it."""
    g, chunk = [], []
    for k in range(N):
        with tf.device(WORKER[k]):
            g.append(tf.get_local_variable("g_%d" % k, initializer=gradient(slice(k, None, N))))
            chunk.append(tf.split(g[k].read_value(), N))
    return g, chunk

# %%
def ring():
    """The ops that make each g_k the sum of all."""
    g, chunk = gradients_on_workers()
    for s in range(2 * (N - 1)):  # both halves; chunk c comes from the left neighbour, k - 1
        before = [list(row) for row in chunk]
        for k in range(N):
            c = (k - s - 1) % N
            with tf.device(WORKER[k]):
                come = tf.identity(before[k - 1][c])
                chunk[k][c] = come + before[k][c] if s < N - 1 else come
    ops = []
    for k in range(N):
        with tf.device(WORKER[k]):
            ops.append(g[k].assign(tf.concat(chunk[k], 0)).op)
    return g, ops

# %%
def parameter_server():
    """The ops of a step with a ps: the g_k are pushed, w moves by their mean and is pulled."""
    g, _ = gradients_on_workers()
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", initializer=tf.zeros_like(gradient(slice(None))))
        mean = tf.add_n([d.read_value() for d in g]) / N
        with tf.control_dependencies([w.assign_sub(0.1 * mean)]):
            moved = w.read_value()
    pulled = []
    for k in range(N):
        with tf.device(WORKER[k]):
            pulled.append(g[k].assign(moved).op)
    return g, pulled

# %%
def traffic(build):
    """{(from, to, tensor): bytes} of a step, from the run metadata; and the g_k after it."""
    seen, options = {}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    with tf.Graph().as_default(), tf.Session(servers[0].target, config=BOUNDED) as session:
        g, ops = build()
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(ops)
        after = session.run(g)
        for _ in range(20):  # now and then a trace misses a transfer; take what all have together
            session.run(ops, options=options, run_metadata=(metadata := tf.RunMetadata()))
            for node in [n for device in metadata.step_stats.dev_stats for n in device.node_stats]:
                if node.node_name == "RecvTensor":  # [640B] [9Mb/s] tensor from device to device
                    size, _, tensor, _, source, _, target = node.timeline_label.split()
                    seen[source, target, tensor] = int(size[1:-2])
    return seen, after

# %% [markdown]
# **Predict:** how many bytes does a worker send and receive in the ring, and how many the ps? A
# vector has `4 * S` bytes.

# %%
moved = {}
for build in ring, parameter_server:
    transfers, after = traffic(build)
    moved[build] = {}
    for (source, target, _), size in transfers.items():
        for device in source, target:
            task = "ps" if "/job:ps" in device else "worker " + device.split("task:")[1][0]
            moved[build][task] = moved[build].get(task, 0) + size
    print(build.__name__, "%d transfers," % len(transfers), "sent and received:")
    print("   ", dict(sorted(moved[build].items())))
    w_k = after[0] if build is parameter_server else -0.1 * after[0] / N
    assert np.allclose(w_k, -0.1 * mean[0], atol=1e-6)  # both make the same step
assert moved[ring] == {"worker %d" % k: 4 * (N - 1) * S // N for k in range(N)}
assert moved[parameter_server]["ps"] == 2 * N * S

# %%
plt.figure(figsize=(8, 3), dpi=80)
for i, (build, colour) in enumerate([(parameter_server, "tab:gray"), (ring, "tab:cyan")]):
    tasks = ["ps"] + ["worker %d" % k for k in range(N)]
    heights = [moved[build].get(task, 0) / S for task in tasks]
    bars = plt.bar(np.arange(N + 1) + 0.4 * i - 0.2, heights, 0.38, color=colour,
                   label=build.__name__.replace("_", " "))
    plt.bar_label(bars, ["%g S" % height if height else "" for height in heights], fontsize=9)
plt.xticks(range(N + 1), tasks)
plt.ylabel("sent and received")
plt.ylim(0, 9)
plt.title("One step of four workers, measured")
plt.legend()
plt.show()

# %% [markdown]
# A worker of the ring sends 2 (`N` − 1) / `N` · `S` and receives as much, here 3 `S` together; with
# a ps it would be 2 `S`. But the ps has 2 · `N` · `S`: all of it goes through one machine, and
# grows with each worker.
#
# ## Where each wins
# A message of `n` bytes takes `α + β n`: a latency and a time for each byte (Hockney 1994). A
# machine sends while it receives; messages that come to one machine at once share its connection,
# so that their bytes queue and their latencies overlap; to add costs nothing:
# ```
# ring     2 (N - 1) * (α + β S / N)      2 (N - 1) steps, one after the other, of S / N bytes
# one ps   2 * (α + β N S)                N messages of S bytes come in at once, then N go out
# ```
# **Predict:** say 100 workers, α = 50 µs, 10 Gbit/s. Which is faster for a model of 1 KB, of 69 KB
# (the perceptron of the examples), of 100 MB?

# %%
ALPHA, BETA = 50e-6, 8 / 10e9  # seconds a message, seconds a byte

def ring_seconds(N, S):
    return 2 * (N - 1) * (ALPHA + BETA * S / N)

def ps_seconds(N, S):
    return 2 * (ALPHA + BETA * N * S)

for name, size in ("1 KB", 1e3), ("69 KB", 69e3), ("100 MB", 100e6):
    print("100 workers, %6s: ring %8.2f ms, one ps %9.2f ms" % (
        name, 1000 * ring_seconds(100, size), 1000 * ps_seconds(100, size)))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), dpi=80, layout="tight")
sizes, workers = np.logspace(2, 9, 200), np.arange(2, 129)
for n, style in (4, "-"), (64, "--"):
    left.loglog(sizes, ps_seconds(n, sizes), style, color="tab:gray", label="one ps, N = %d" % n)
    left.loglog(sizes, ring_seconds(n, sizes), style, color="tab:cyan", label="ring, N = %d" % n)
left.set(xlabel="S in bytes", ylabel="seconds for one step's transfers")
left.legend(fontsize=8)
equal = ALPHA / BETA * workers * (workers - 2) / (workers ** 2 - workers + 1)
right.fill_between(workers, 1e2, np.maximum(equal, 1e2), color="tab:gray", alpha=0.4)
right.fill_between(workers, np.maximum(equal, 1e2), 1e9, color="tab:cyan", alpha=0.4)
right.text(16, 2e3, "one ps is faster", ha="center")
right.text(16, 1e7, "the ring is faster", ha="center")
right.set(xlabel="N, workers", ylabel="S in bytes", xscale="log", yscale="log",
          ylim=(1e2, 1e9), xticks=2 ** np.arange(1, 8), xticklabels=2 ** np.arange(1, 8))
plt.show()

# %% [markdown]
# Both are equal at `S = α / β * N (N - 2) / (N² - N + 1)`. For many workers that is `α / β`, here
# 62.5 KB: as many bytes as pass during one latency. Below it the ring's many steps cost more than
# the bytes that it saves; above it the ps is a bottleneck. For two workers the ring is never
# slower.
#
# This is a model, not a measurement (Hockney 1994, The Communication Challenge for MPP, Parallel
# Computing 20(3); for rings: Thakur, Rabenseifner, Gropp 2005, Optimization of Collective
# Communication Operations in MPICH, IJHPCA 19(1)). Several ps share the bytes; real all-reduces
# send one gradient while the next is computed, and there are ways with fewer steps for small
# vectors. The whole program, with sockets between processes, is
# [Ring-AllReduce](../Ring-AllReduce/). Next: [Sessions](Sessions.ipynb).

# %%
# Stop what this notebook started.
assert not [thread for thread in threading.enumerate() if thread.name.startswith("ring ")]
print("the threads have ended, the servers end with the kernel")

# %% [markdown]
# ## Exercises

# %% [markdown]
# **1. Whole vectors.** Write `whole(x, k, exchange)`, in which whole vectors go around the ring,
# `N` − 1 times. How many bytes does each worker send?
#
# <details><summary>Solution</summary>
#
# ```python
# def whole(x, k, exchange):
#     out = x.copy()
#     for s in range(N - 1):
#         out = exchange(out)  # the vector of worker k - s - 1
#         x += out
#
# vectors = [gradient(slice(k, None, N)) for k in range(N)]
# sent = in_threads(whole, vectors)
# assert all(np.allclose(x / N, mean[0], atol=1e-6) for x in vectors)
# assert set(sent) == {(N - 1) * S}  # N / 2 times as many as with chunks
# ```
#
# </details>

# %% [markdown]
# **2. What `N` does not divide.** Let the vectors have 10 numbers. Is the sum right? Who sends how
# much, and how much is it together?
#
# <details><summary>Solution</summary>
#
# ```python
# vectors = [np.full(10, k + 1.0) for k in range(N)]
# sent = in_threads(all_reduce, vectors)
# assert all(np.array_equal(x, np.full(10, 10.0)) for x in vectors)
# assert len(set(sent)) > 1  # chunks of 3, 3, 2 and 2 numbers
# assert sum(sent) == 2 * (N - 1) * vectors[0].nbytes  # together as ever
# ```
#
# </details>

# %% [markdown]
# **3. As many ps as workers.** Each machine holds a worker and a ps, and each ps holds one chunk of
# `w`. How many bytes does a machine send to others in a step? How long does it take in the model?
#
# <details><summary>Solution</summary>
#
# ```python
# def shared_seconds(N, S):  # a chunk to each of N - 1 other ps; then a chunk of w to each worker
#     return 2 * (ALPHA + BETA * (N - 1) * S / N)
#
# pushed, pulled = (N - 1) * S // N, (N - 1) * S // N
# assert pushed + pulled == in_threads(all_reduce, [gradient(slice(None)) for _ in range(N)])[0]
# assert shared_seconds(2, S) == ring_seconds(2, S)
# # The same bytes in fewer steps; but each machine must talk to all others at once.
# assert all(shared_seconds(n, 1e6) < ring_seconds(n, 1e6) for n in (4, 16, 64))
# ```
#
# </details>
