"""A local cluster of Ray whose start may take its time."""

import contextlib
import inspect
import socket
import time
from unittest import mock

import ray._private.services
from ray._raylet import DASHBOARD_AGENT_LISTEN_PORT_NAME, persist_port
from ray.cluster_utils import Cluster

START_SECONDS = 600.0  # Ray gives a node 30, which a busy machine exceeds
# Of a node's agents. They are given beforehand, because a node gives its agents 15 seconds to tell
# it those that they choose, which a busy machine exceeds too.
PORTS = (
    *("metrics_agent_port", "metrics_export_port"),
    *("dashboard_agent_listen_port", "runtime_env_agent_port"),
)


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens at."""
    with contextlib.ExitStack() as bound:
        probes = [bound.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def agents() -> dict[str, int]:
    return dict(zip(PORTS, free_ports(len(PORTS)), strict=True))


class LocalCluster:
    """A head without processors, as KubeRay makes it, and nodes of one each."""

    def __init__(self, nodes: int, **head):
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, **agents(), **head},
        )
        self._nodes = []
        for _ in range(nodes):
            self.add_node()

    @property
    def address(self) -> str:
        return self._cluster.address

    def add_node(self) -> None:
        self._nodes.append(self._cluster.add_node(num_cpus=1, **agents()))

    def kill_node(self) -> None:
        """The oldest but the head; it has no time to say goodbye."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def patient_cluster(nodes: int, **head):
    """A :class:`LocalCluster`; ``head``: more arguments of its first node."""
    impatient, forgetful = ray._private.services.get_node, ray._private.services.start_raylet

    def get_node(*arguments):
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return impatient(*arguments)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def start_raylet(*arguments, **more):
        """Tells the node the one port that it asks its agent for all the same."""
        given = inspect.signature(forgetful).bind(*arguments, **more).arguments
        port, place = given["dashboard_agent_listen_port"], (given["session_dir"], given["node_id"])
        persist_port(*place, DASHBOARD_AGENT_LISTEN_PORT_NAME, port)
        return forgetful(*arguments, **more)

    with (
        mock.patch("ray._private.services.get_node", get_node),
        mock.patch("ray._private.services.start_raylet", start_raylet),
    ):
        cluster = LocalCluster(nodes, **head)
        try:
            yield cluster
        finally:
            cluster.shutdown()
