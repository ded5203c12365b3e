"""How the workers of Ring-AllReduce reach their neighbours, and its Ring, for the notebooks after it.

NumPy only, so that a worker's process starts quickly.
"""

import concurrent.futures
import json
import os
import socket
import time
import numpy as np


def this_task():
    """Returns the addresses of all workers and the rank of this one, from TF_CONFIG."""
    config = json.loads(os.environ["TF_CONFIG"])
    return config["cluster"]["worker"], config["task"]["index"]


def connected(addresses, k, seconds):
    """Returns the sockets to the left and the right neighbour, which may still be starting.

    seconds: the longest that one of their calls may take.
    """
    places = [address.rsplit(":", 1) for address in addresses]
    (host, port), (right_host, right_port) = places[k], places[(k + 1) % len(places)]
    with socket.create_server((host, int(port)), reuse_port=True) as server:
        server.settimeout(20)
        end = time.monotonic() + 20
        while True:
            try:
                right = socket.create_connection((right_host, int(right_port)), timeout=20)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        left, _ = server.accept()
    for connection in left, right:
        connection.settimeout(seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no wait for more bytes
    return left, right


def receive(connection, into):
    """Fills an array, and returns it."""
    data = into.view(np.uint8)
    while data.size:
        count = connection.recv_into(data)
        if not count:
            raise ConnectionError("the left neighbour has closed the connection")
        data = data[count:]
    return into


class Ring:
    """Worker k of n, which are joined in a ring; `sent` counts the bytes that it has sent."""

    def __init__(self, addresses, k, seconds=20):
        self.k, self.n, self.sent = k, len(addresses), 0
        self.second_thread = concurrent.futures.ThreadPoolExecutor(1)
        self.left, self.right = connected(addresses, k, seconds)

    def exchange(self, out, into):
        """Sends `out` to the right, and meanwhile fills `into` from the left."""
        sending = self.second_thread.submit(self.right.sendall, out)
        receive(self.left, into)
        sending.result()  # wait until all is sent
        self.sent += out.nbytes
        return into

    def reduce_scatter(self, x):
        """Returns chunk k of the sum over all workers."""
        chunk = np.array_split(x.copy(), self.n)
        for s in range(self.n - 1):
            mine, theirs = chunk[(self.k - 1 - s) % self.n], chunk[(self.k - 2 - s) % self.n]
            theirs += self.exchange(mine, np.empty_like(theirs))
        return chunk[self.k]

    def all_gather(self, part, size=None):
        """Returns the chunks of all workers as one vector. size: if they are not equally long."""
        whole = np.empty(size or self.n * len(part), part.dtype)
        chunk = np.array_split(whole, self.n)
        chunk[self.k][:] = part
        for s in range(self.n - 1):
            self.exchange(chunk[(self.k - s) % self.n], chunk[(self.k - 1 - s) % self.n])
        return whole

    def all_reduce(self, x):
        """Returns the sum over all workers."""
        return self.all_gather(self.reduce_scatter(x), len(x))
