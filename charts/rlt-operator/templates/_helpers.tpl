{{/* The release's name, which is also that of everything it holds. */}}
{{- define "rlt-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rlt-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rlt-operator.labels" -}}
{{ include "rlt-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rlt
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "rlt-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What Pod Security's restricted profile asks of a pod, and more of its container. */}}
{{- define "rlt-operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "rlt-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What the operator may do in all namespaces or in each watched one. It reads no Secret there and writes no pod. */}}
{{- define "rlt-operator.rules" -}}
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs]
  verbs: [get, list, watch, delete]  # delete: ttlSecondsAfterFinished
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs/status]
  verbs: [patch]
# Children with blockOwnerDeletion, where the API server checks that (OwnerReferencesPermissionEnforcement).
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch, create, patch, delete]
# Reads why Kueue does not admit a RayCluster.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, patch]
# storage.storageClassName.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, patch]
# NVLink over nodes, where NVIDIA's DRA driver is.
- apiGroups: [resource.nvidia.com]
  resources: [computedomains]
  verbs: [create, patch]
# scheduling.gang by Kubernetes' own scheduler.
- apiGroups: [scheduling.k8s.io]
  resources: [workloads]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Asks, by dry runs, whether a job's podTemplate makes a valid pod; stores none.
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [create]
# Lists the scheduler's and kubelet's events of a job's pods, creates its own.
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end -}}

{{/* What it may do whatever it watches: RLRuntimes, nodes and CRDs belong to no namespace. */}}
{{- define "rlt-operator.clusterRules" -}}
- apiGroups: [rlt.dev]
  resources: [rlruntimes]
  verbs: [get, list, watch]
# Reads from labels and allocatable resources which network the nodes have.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
# Reads which fields the KubeRay that is installed knows.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [rayclusters.ray.io]
  verbs: [get]
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates "operator") }}
# Writes there whom the API server is to trust.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "rlt-operator.fullname" . }}]
  verbs: [get, patch]
{{- end }}
{{- end -}}
