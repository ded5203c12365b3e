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
# # Multiple workers in one notebook
#
# The exercise of the [three notebooks](Multiple-Workers/Parameter-Server.ipynb) once more. Now
# this notebook is the parameter server, and starts the two workers as processes itself, as
# launchers do. Here they are called by their task's number: Worker-1 is worker 0.
#
# After this notebook you can:
# - start a cluster's processes from a program, and end them whatever happens;
# - write one program for all workers, which differ in their task's number only;
# - tell what is shared and what is local, by place and by value;
# - say what happens to the shared parameters when a worker dies in the middle of its turn.
#
# About 15 minutes. Before it comes [Worker-2](Multiple-Workers/Worker-2.ipynb).

# %%
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"   # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"     # a server may listen on a port that we hold for it
import inspect
import json
import socket
import subprocess
import sys
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()

# %% [markdown]
# ## The program
# All three processes need the shared things: parameters `w` and some queues, on the ps. The text
# of this function goes to the workers too, so that names and places are the same. A worker waits
# for a token in the queue of its turns, and afterwards puts one into the other's; `records` tell
# us of its pushes.

# %%
def shared():
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", initializer=[0.0, 0.0])
        turns = [tf.FIFOQueue(9, tf.bool, [[]], shared_name="turn_%d" % k) for k in range(2)]
        records = tf.FIFOQueue(9, [tf.int32, tf.float32], [[], [2]], shared_name="records")
    return w, turns, records

SHARED = inspect.getsource(shared)

# %% [markdown]
# A worker first gets the addresses, its number k, how many turns it has, and in which of them it
# dies (0: in none; that is for later). It ends when its standard input does: when this notebook
# closes it, or when the kernel ends, however that happens. Its loss is ½|w − c|², with c = (8, 0)
# for k = 0 and (0, 8) for k = 1.

# %%
START = '''
import json, os, sys, threading
import tensorflow.compat.v1 as tf

def end_with_the_notebook():
    sys.stdin.read()
    os._exit(1)

threading.Thread(target=end_with_the_notebook, daemon=True).start()
'''

# %%
SERVER = '''
tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()
tf.enable_resource_variables()
addresses, k, rounds, dies = json.loads(sys.argv[1])
me = "/job:worker/task:%d" % k
c = [[8.0, 0.0], [0.0, 8.0]][k]
server = tf.train.Server(addresses, job_name="worker", task_index=k)
config = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=30_000)
'''

# %% [markdown]
# In a turn it pulls `w` into its own `local/w`, makes two local steps with lr = 0.5, summing the
# gradients in `local/a`, and pushes: w ← w − lr·a.

# %%
TURNS = '''
lr, (w, turns, records) = 0.5, shared()
with tf.device(me):
    w_k = tf.get_variable("local/w", initializer=[0.0, 0.0])
    a = tf.get_variable("local/a", initializer=[0.0, 0.0])
    pull = tf.group(w_k.assign(w), a.assign([0.0, 0.0]))
    g = w_k.read_value() - c
    with tf.control_dependencies([g]):  # both use the gradient at w_k before the step
        step = tf.group(w_k.assign_sub(lr * g), a.assign_add(g))
    push = w.assign_sub(lr * a, read_value=False)
my_turn, your_turn = turns[k].dequeue(), turns[1 - k].enqueue(True)
tell = records.enqueue([tf.constant(k), w.read_value()])
mine = [w_k.initializer, a.initializer]
'''

# %%
LOOP = '''
with tf.Session(server.target, config=config) as session:
    session.run(mine)
    for turn in range(1, rounds + 1):
        session.run(my_turn)
        for op in pull, step, step:
            session.run(op)
        if turn == dies:
            os.kill(os.getpid(), 9)
        session.run(push)
        session.run(tell)
        print(json.dumps(session.run(w_k).tolist()), flush=True)
        session.run(your_turn)
os._exit(0)
'''

# %% [markdown]
# ## Three processes
# The order in which they start does not matter: a worker's session waits for the ps, and its first
# turn for a token. We let worker 1 start first, and the ps last.

# %%
held = [socket.socket() for _ in range(3)]
for one in held:  # each holds a free port until the end
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", 0))
own, *others = ["127.0.0.1:%d" % one.getsockname()[1] for one in held]
addresses, workers = {"ps": [own], "worker": others}, {}

def start_worker(k, rounds=3, dies=0):
    program = START + SERVER + SHARED + TURNS + LOOP
    command = [sys.executable, "-c", program, json.dumps([addresses, k, rounds, dies])]
    workers[k] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

start_worker(1)
start_worker(0, rounds=4, dies=4)
server = tf.train.Server(addresses, job_name="ps", task_index=0)

# %% [markdown]
# **Predict:** `w` begins at (0, 0), and worker 0 has the first turn. Each has three. From the rule
# above: what is `w` after the first push, and after the second?

# %%
tf.reset_default_graph()  # so that all cells can be run again
w, turns, records = shared()
next_record, first_turn = records.dequeue(), turns[0].enqueue(True)
config = tf.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=60_000)
session = tf.Session(server.target, config=config)
session.run(w.initializer)  # before the first token: nobody can pull too early
session.run(first_turn)
history = [(None, [0.0, 0.0])]
for _ in range(6):
    who, value = session.run(next_record)
    history.append((int(who), value.tolist()))
    print("worker", who, "has pushed: w =", value.tolist())

# %% [markdown]
# Two steps with lr = 0.5 carry a worker three quarters of the way to its minimum, from wherever
# `w` is: from (0, 0) to (6, 0); from there to (1.5, 6). They pull `w` to and fro, because their
# data differ: the local copies follow only one of the two losses, `w` both.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3), dpi=80)
for part, marker in (0, "o"), (1, "s"):
    line = [value[part] for _, value in history]
    axes.plot(line, color="tab:gray", label="w[%d] on the ps" % part, linestyle=["-", "--"][part])
    for i, (who, value) in enumerate(history[1:], 1):
        axes.plot(i, value[part], marker, color=["tab:blue", "tab:orange"][who])
axes.set(xlabel="push", ylabel="value", title="blue: pushed by worker 0, orange: by worker 1")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.tight_layout()
plt.show()

# %% [markdown]
# **Predict:** in each turn a worker also prints its `local/w`. After three turns, which of the two
# is equal to `w` on the ps? What does the ps itself hold under the name `local/w`?

# %%
last = session.run(w).tolist()
for k in 0, 1:
    local = [json.loads(workers[k].stdout.readline()) for _ in range(3)][-1]
    print("worker %d: local/w = %s, equal to w: %s" % (k, local, local == last))
with tf.device("/job:ps/task:0"):
    namesake = tf.get_variable("local/w", initializer=[0.0, 0.0])
print("on the ps local/w has a value:", session.run(tf.is_variable_initialized(namesake)))

# %% [markdown]
# Worker 1 had the last turn, so its copy is what it pushed; worker 0's was right before that. They
# have the same name, on two tasks: two variables, and none on the ps. `w` is one variable for all
# three.
#
# ## A worker dies
# **Predict:** worker 0 has a fourth turn, in which it is killed: after its local steps, before the
# push. What is in `w`? Then it starts anew, for one turn. Does it go on where the other had
# stopped?

# %%
print("killed by signal", -workers[0].wait(timeout=30))
print("w is as it was:", session.run(w).tolist() == last)
start_worker(0, rounds=1)
session.run(first_turn)  # the dead one took its token with it
who, value = session.run(next_record)
print("worker", who, "has pushed: w =", value.tolist())
assert value.tolist() == [last[0] + 0.75 * (8 - last[0]), 0.25 * last[1]]

# %% [markdown]
# Its local steps and its token are lost, the shared `w` is not: the new one pulls it and goes on.
# In the asynchronous examples nobody waits for a token, so the others would not even have noticed.

# %%
# Stop what this notebook started.
for process in workers.values():  # one that still runs ends with its input
    process.stdin.close()
    process.wait(timeout=30)
session.close()
print("all workers have ended")

# %% [markdown]
# ## Exercises
# They need what the last cell has stopped: restart the kernel, and run the cells above that one.
#
# The next notebook is [Stale-Gradients](Stale-Gradients.ipynb): the same without turns. The
# algorithm is that of [DOWNPOUR-Easy](../DOWNPOUR-Easy/).

# %% [markdown]
# **1. One more turn.** Give worker 1 one more turn, with the functions of this notebook, and
# compute from the rule what it pushes.
#
# <details><summary>Solution</summary>
#
# ```python
# before = session.run(w).tolist()
# start_worker(1, rounds=1)  # the token of worker 0's last turn is there
# who, value = session.run(next_record)
# expected = [0.25 * before[0], before[1] + 0.75 * (8 - before[1])]
# assert who == 1 and value.tolist() == expected
# ```
#
# </details>

# %% [markdown]
# **2. Without a token.** How many tokens are in the two queues now? (`queue.size()`)
#
# <details><summary>Solution</summary>
#
# ```python
# assert workers[1].wait(timeout=30) == 0            # it has passed on its turn
# assert session.run([turn.size() for turn in turns]) == [1, 0]
# ```
#
# Before the first exercise it was the other way round.
#
# </details>

# %% [markdown]
# **3. The whole state.** What must a new ps know, so that the workers can go on after the death of
# the ps? List the variables that our session can save, and say what is missing.
#
# <details><summary>Solution</summary>
#
# ```python
# on_ps = [v.op.name for v in tf.global_variables() if v.device == "/job:ps/task:0"]
# assert on_ps[0] == "w"
# # A Saver saves variables. The tokens are in queues, which are no variables: they are lost.
# assert not any("turn" in name for name in on_ps)
# ```
#
# </details>
