"""Kubernetes manifests of other controllers."""

from __future__ import annotations

from conversion import WORKERS, Conversion

MANIFESTS = (
    Conversion(
        "RayCluster",
        """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  rayVersion: 2.46.0
  enableInTreeAutoscaling: true
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: h, image: i:1, resources: {limits: {cpu: "2", memory: 8Gi}}}]}}
  workerGroupSpecs:
    - {groupName: big, replicas: 3, maxReplicas: 5, template: {spec: {nodeSelector: {a: b}, containers: [{name: w,
       image: i:1, env: [{name: A, value: "1"}], resources: {limits: {cpu: "8", memory: 64Gi, nvidia.com/gpu: 4,
       rdma/hca: 1}}}], volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]}}}
""",
        {
            "cluster.image": "i:1",
            "cluster.head.resources": {"cpu": "2", "memory": "8Gi"},
            "scheduling.queueName": "q",
            WORKERS: {
                "name": "big",
                "replicas": 3,
                "nodeSelector": {"a": "b"},
                "resources": {"cpu": "8", "memory": "64Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 4},
                "podTemplate": {"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}},
            },
        },
        (
            "spec.enableInTreeAutoscaling true: a job has a fixed number",
            "the program: a RayCluster has none",
            "spec.workerGroupSpecs[0].template.spec.containers[0].resources.limits.rdma/hca 1",
        ),
    ),
    Conversion(
        "RayJob",
        """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: j}
spec:
  entrypoint: python3 -m verl.trainer.main_ppo trainer.nnodes=1
  runtimeEnvYAML: "env_vars: {A: '1'}\\npip: [x]"
  shutdownAfterJobFinishes: true
  backoffLimit: 2
  ttlSecondsAfterFinished: 60
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{image: i}]}}}
    workerGroupSpecs: [{groupName: w, replicas: 1, template: {spec: {containers: [{image: i,
      resources: {limits: {cpu: 1, memory: 2Gi}}}]}}}]
""",
        {
            "failurePolicy.maxRestarts": 2,
            "ttlSecondsAfterFinished": 60,
            f"{WORKERS}.resources": {"cpu": "1", "memory": "2Gi"},
            "cluster.env": [{"name": "A", "value": "1"}],
            "framework.runtimeEnv": {"pip": ["x"]},
        },
        ("spec.shutdownAfterJobFinishes true",),
        last=("trainer.nnodes=1",),
    ),
    Conversion(
        "TrainJob",
        """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    {image: i, command: [torchrun, train.py], numNodes: 2, numProcPerNode: 8,
     env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}],
     resourcesPerNode: {limits: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 8}}}
""",
        {
            f"{WORKERS}.replicas": 2,
            f"{WORKERS}.accelerator.count": 8,
            "framework.command": ["torchrun", "train.py"],
            "cluster.env": [{"name": "T", "secretKeyRef": {"name": "s", "key": "k"}}],
        },
        ("spec.runtimeRef torch-distributed", "torchrun: ", "spec.trainer.numProcPerNode"),
    ),
    Conversion(
        "PyTorchJob",
        """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: p}
spec:
  nprocPerNode: "4"
  runPolicy: {cleanPodPolicy: None, backoffLimit: 1, schedulingPolicy: {queue: q}}
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: i,
      command: [python3, train.py], args: ["--epochs=1"],
       resources: {limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 4}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: pytorch, image: i, command: [python3, worker.py],
      resources: {limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 4}}}]}}}
""",
        {
            f"{WORKERS}.replicas": 4,
            f"{WORKERS}.accelerator.count": 4,
            "failurePolicy.maxRestarts": 1,
            "scheduling.queueName": "q",
        },
        (
            "spec.nprocPerNode 4: torchrun",
            'spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command ["python3"',
        ),
        last=("train.py", "--epochs=1"),
    ),
)
