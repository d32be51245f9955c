"""A real Kubernetes of several nodes on one bare Linux machine, and a handle on it for tests.

    from cluster import Cluster

    cluster = Cluster.connect()                 # what KUBECONFIG names, else the embedded cluster that is up
    cluster = Cluster.up(nodes=2)               # the embedded cluster, made or reused
    api = Cluster.up(nodes=0, state=tmp_path / "api", first_port=17440)     # an API server alone, beside it

    cluster.kubeconfig                          # a Path
    cluster.kubectl("get", "pods", "-n", "demo")            # -> str, ValueError with kubectl's words where it fails
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}})
    cluster.helm("upgrade", "--install", "rlt", "charts/rlt-operator")
    cluster.build_image(Path("images/operator.Dockerfile"), context=repo, tag="localhost/rlt-operator:dev",
                        build_args={"BASE": images.BASE})   # builds and loads it on every node
    cluster.shared_volume("demo", "checkpoints")            # RWX claim; returns its folder on this machine
    cluster.label_node("node-1", {"topology.kubernetes.io/zone": "a"})
    cluster.set_extended_resource("node-1", "nvidia.com/gpu", 8)
    cluster.lose_node("node-2"); cluster.restore_node("node-2")
    cluster.down()

    with kueue(cluster): ...                    # cluster.kueue: Kueue, for so long
    with cert_manager(cluster): ...             # cluster.cert_manager: cert-manager, needs no nodes
    with fake_nodes(cluster, racks(8, nodes=8, gpus=8)): ...    # cluster.fake_nodes: 64 nodes more, played by KWOK

Pods whose image starts with ``localhost/rlt-trainer:`` see this machine's Python environment (.venv, trainer/, crds/ of
the repository) read-only at the same paths; `images.TRAINER` is loaded on every node.
"""

from cluster.handle import Cluster

__all__ = ["Cluster"]
