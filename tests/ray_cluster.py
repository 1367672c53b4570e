"""A local cluster of Ray whose start may take its time."""

import contextlib
import time
from unittest import mock

import ray._private.services
from ray.cluster_utils import Cluster

START_SECONDS = 300.0  # Ray gives a node 30, which a busy machine exceeds


class LocalCluster:
    """A head without processors, as KubeRay makes it, and nodes of one each."""

    def __init__(self, nodes: int, **head):
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, **head},
        )
        self._nodes = []
        for _ in range(nodes):
            self.add_node()

    @property
    def address(self) -> str:
        return self._cluster.address

    def add_node(self) -> None:
        self._nodes.append(self._cluster.add_node(num_cpus=1))

    def kill_node(self) -> None:
        """The oldest but the head; it has no time to say goodbye."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def patient_cluster(nodes: int, **head):
    """A :class:`LocalCluster`; ``head``: more arguments of its first node."""
    impatient = ray._private.services.get_node

    def get_node(*arguments):
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return impatient(*arguments)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    with mock.patch("ray._private.services.get_node", get_node):
        cluster = LocalCluster(nodes, **head)
        try:
            yield cluster
        finally:
            cluster.shutdown()
