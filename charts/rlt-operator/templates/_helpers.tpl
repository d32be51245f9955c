{{/* The name of the release, and of all objects in it. */}}
{{- define "rlt-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
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

{{/* The labels of the page differ from the operator's, which Services and NetworkPolicies of jobs select. */}}
{{- define "rlt-operator.uiSelectorLabels" -}}
app.kubernetes.io/name: rlt-ui
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rlt-operator.uiLabels" -}}
{{ include "rlt-operator.uiSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rlt
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The labels of the webhook, which the NetworkPolicies of jobs do not admit either. */}}
{{- define "rlt-operator.webhookSelectorLabels" -}}
app.kubernetes.io/name: rlt-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rlt-operator.webhookLabels" -}}
{{ include "rlt-operator.webhookSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rlt
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What the pods of the operator and of the webhook have in common. */}}
{{- define "rlt-operator.scrapeAnnotations" -}}
{{- if .Values.metrics.scrapeAnnotations }}
prometheus.io/scrape: "true"
{{- if .Values.metrics.authentication }}
prometheus.io/scheme: https
prometheus.io/port: {{ .Values.metrics.securePort | quote }}
{{- else }}
prometheus.io/port: {{ .Values.metrics.port | quote }}
{{- end }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{/* The helpers for ports have the chart and a number of a shard as arguments; it is 0 for the webhook, too. */}}
{{- define "rlt-operator.metricsOptions" -}}
{{- $metrics := (index . 0).Values.metrics -}}
{{- $shard := index . 1 -}}
- --metrics-port={{ add $metrics.port $shard }}
{{- if $metrics.authentication }}
- --secure-metrics-port={{ add $metrics.securePort $shard }}
{{- end }}
{{- end -}}

{{- define "rlt-operator.ofShard" -}}
{{- if . }}-{{ . }}{{ end -}}
{{- end -}}

{{- define "rlt-operator.metricsPorts" -}}
{{- $metrics := (index . 0).Values.metrics -}}
{{- $shard := index . 1 -}}
- name: metrics{{ include "rlt-operator.ofShard" $shard }}
  containerPort: {{ add $metrics.port $shard }}
{{- if $metrics.authentication }}
- name: https-metrics{{ include "rlt-operator.ofShard" $shard }}
  containerPort: {{ add $metrics.securePort $shard }}
{{- end }}
{{- end -}}

{{- define "rlt-operator.metricsServicePorts" -}}
{{- $metrics := (index . 0).Values.metrics -}}
{{- $shard := index . 1 -}}
- name: metrics{{ include "rlt-operator.ofShard" $shard }}
  port: {{ add $metrics.port $shard }}
  targetPort: metrics{{ include "rlt-operator.ofShard" $shard }}
{{- if $metrics.authentication }}
- name: https-metrics{{ include "rlt-operator.ofShard" $shard }}
  port: {{ add $metrics.securePort $shard }}
  targetPort: https-metrics{{ include "rlt-operator.ofShard" $shard }}
{{- end }}
{{- end -}}

{{/* Who asks for the metrics, and whether it may read them. */}}
{{- define "rlt-operator.metricsRules" -}}
{{- if .Values.metrics.authentication }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{- define "rlt-operator.pullAndPriority" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "rlt-operator.runtimeOptions" -}}
{{- with .Values.runtimes.default }}
- --default-runtime={{ . }}
{{- end }}
{{- if .Values.runtimes.required }}
- --require-runtime
{{- end }}
{{- end -}}

{{- define "rlt-operator.probes" -}}
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics{{ include "rlt-operator.ofShard" (index . 1) }}
  periodSeconds: 5
# The port opens before the first request to the API server. Until then Python loads its modules.
startupProbe:
  httpGet:
    path: /healthz
    port: metrics{{ include "rlt-operator.ofShard" (index . 1) }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics{{ include "rlt-operator.ofShard" (index . 1) }}
  periodSeconds: 20
  timeoutSeconds: 5
{{- end -}}

{{- define "rlt-operator.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Prometheus, and the pods in the namespace of the release, such as the pod of `helm test`. The second argument is the
number of shards. */}}
{{- define "rlt-operator.metricsIngress" -}}
{{- $values := (index . 0).Values -}}
- ports:
    {{- range $shard := until (int (index . 1)) }}
    - port: metrics{{ include "rlt-operator.ofShard" $shard }}
    {{- if $values.metrics.authentication }}
    - port: https-metrics{{ include "rlt-operator.ofShard" $shard }}
    {{- end }}
    {{- end }}
  from:
    - podSelector: {}
    {{- range $values.networkPolicy.metricsNamespaces }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ . }}
    {{- end }}
{{- end -}}

{{- define "rlt-operator.uiRules" -}}
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs]
  verbs: [list]
{{- end -}}

{{/* A map of labels as a selector, such as a=b,c=d. */}}
{{- define "rlt-operator.labelSelector" -}}
{{- $pairs := list -}}
{{- range $label, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $label $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{- define "rlt-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The security contexts that the pod security level `restricted` requires; stricter for the container. */}}
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

{{/* Permissions in all namespaces, or in each watched one. No reads of Secrets. */}}
{{- define "rlt-operator.rules" -}}
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs]
  verbs: [get, list, watch, delete]  # delete: ttlSecondsAfterFinished
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs/status]
  verbs: [patch]
# Required for children with blockOwnerDeletion by the admission plugin OwnerReferencesPermissionEnforcement.
- apiGroups: [rlt.dev]
  resources: [rltrainingjobs/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch, create, patch, delete]
# Reads the reason why Kueue does not admit a RayCluster.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
# The token of each job's Ray cluster. Kubernetes cannot limit `create` to names, and the names contain the jobs' names.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
{{- end }}
# For storage.storageClassName.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
# For NVLink between nodes with NVIDIA's DRA driver.
- apiGroups: [resource.nvidia.com]
  resources: [computedomains]
  verbs: [get, create, patch]
# For scheduling.gang with the default scheduler.
- apiGroups: [scheduling.k8s.io]
  resources: [workloads]
  verbs: [get, create, patch]
# Detects a Service with the name of the head's Service that KubeRay did not create. Creates the one of sandbox pods.
- apiGroups: [""]
  resources: [services]
  verbs: [get, create]
# The pool of a job's sandbox pods: a Job, or Sandboxes for the provider AgentSandbox.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create]
- apiGroups: [agents.x-k8s.io]
  resources: [sandboxes]
  verbs: [get, create]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, deletecollection]  # deletecollection: sandbox pods that have ended
# Validates a job's podTemplate with dry runs. Stores nothing.
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [create]
# Watches warnings about a job's pods, creates the operator's events and counts their repetitions.
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, watch, create, patch]
# Reads the labels for RLRuntimes. A Role permits it for its own namespace.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end -}}

{{/* Permissions on cluster-scoped objects: RLRuntimes, nodes and CRDs. */}}
{{- define "rlt-operator.clusterRules" -}}
- apiGroups: [rlt.dev]
  resources: [rlruntimes]
  verbs: [get, list, watch]
# Detects the network of the nodes from labels and allocatable resources.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# Reads the fields that the installed KubeRay supports, and whether the CRDs are as new as the operator.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [rayclusters.ray.io, rltrainingjobs.rlt.dev, rlruntimes.rlt.dev]
  verbs: [get]
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates "operator") }}
# Writes the caBundle of the webhook.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "rlt-operator.fullname" . }}]
  verbs: [get, patch]
{{- end }}
{{- end -}}

{{/* The namespaces of a policy's binding: those that the operator watches. */}}
{{- define "rlt-operator.matchResources" -}}
{{- if or .Values.watchNamespaces .Values.watchNamespaceLabels -}}
matchResources:
  namespaceSelector:
    {{- with .Values.watchNamespaces }}
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values:
          {{- toYaml . | nindent 10 }}
    {{- end }}
    {{- with .Values.watchNamespaceLabels }}
    matchLabels:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}
{{- end -}}
