"""Figures of the notebooks about servers and sessions."""

from lab.drawings.shapes import arrow, box, figure, frame, left, text


@figure("sessions.svg", 540, 262)
def sessions():
    """Two clients, each with a graph and a session. The target of client 1 is the worker's server,
    the target of client 2 is the ps's server. Both targets and the connection between the servers
    use gRPC. The variable v lives on the ps."""
    return [
        frame(10, 10, 170, 92, "client 1"),
        box(95, 66, "graph, session", width=140),
        frame(10, 130, 170, 92, "client 2"),
        box(95, 186, "graph, session", width=140),
        frame(280, 10, 250, 92, "/job:worker/task:0"),
        box(405, 66, "server\nmaster of session 1", width=190, height=48),
        frame(280, 130, 250, 92, "/job:ps/task:0"),
        box(373, 186, "server\nmaster of session 2", width=150, height=48),
        box(492, 186, "v = 2", "ps", width=62),
        arrow(166, 66, 308, 66, both=True),
        arrow(166, 186, 298, 186, both=True),
        arrow(430, 91, 430, 160, both=True),
        arrow(449, 186, 460, 186),
        text(233, 58, "target", "small"),
        text(233, 178, "target", "small"),
        left(10, 250, "Every arrow between two frames is gRPC. v belongs to its server.", "small"),
    ]
