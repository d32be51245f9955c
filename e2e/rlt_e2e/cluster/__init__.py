"""A Kubernetes cluster of several nodes on one Linux machine without Docker, and a client of it for tests.

    from rlt_e2e.cluster import Cluster

    cluster = Cluster.connect()                 # the cluster of KUBECONFIG, else the embedded cluster that runs
    cluster = Cluster.up(nodes=2)               # the embedded cluster, created or reused
    api = Cluster.up(nodes=0, state=tmp_path / "api", first_port=17440)     # a second one, only a control plane

    cluster.kubeconfig                          # a Path
    cluster.kubectl("get", "pods", "-n", "demo")            # -> str; ValueError with kubectl's standard error
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}})
    cluster.helm("upgrade", "--install", "rlt", "charts/rlt-operator")
    cluster.build_image(Path("images/operator.Dockerfile"), context=repo, tag="localhost/rlt-operator:dev",
                        build_args={"BASE": images.BASE})   # builds and loads it on every node
    cluster.shared_volume("demo", "checkpoints")            # ReadWriteMany PVC; returns its folder on this machine
    cluster.label_node("node-1", {"topology.kubernetes.io/zone": "a"})
    cluster.set_extended_resource("node-1", "nvidia.com/gpu", 8)
    cluster.lose_node("node-2"); cluster.restore_node("node-2")
    cluster.down()

    with kueue(cluster): ...                    # cluster.kueue: Kueue, removed at the end of the block
    with cert_manager(cluster): ...             # cluster.cert_manager: cert-manager, needs no nodes
    with agent_sandbox(cluster): ...            # cluster.agent_sandbox: agent-sandbox, needs no nodes
    with fake_nodes(cluster, build_racks(8, nodes=8, gpus=8)): ...      # cluster.fake_nodes: 64 more nodes, by KWOK

In pods whose image starts with ``localhost/rlt-trainer:``, this machine's Python environment (.venv, trainer/, api/
and pod/) is mounted read-only at the same paths. `images.TRAINER` is loaded on every node.
"""

from rlt_e2e.cluster.handle import Cluster

__all__ = ["Cluster"]
