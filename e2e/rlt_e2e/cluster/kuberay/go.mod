// KubeRay's versions whose CRDs rlt is tested with are those in go.sum; several versions of one module have no place here.
module rlt.dev/kuberay-versions

go 1.25.0
