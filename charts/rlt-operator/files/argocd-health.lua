-- Argo CD health check of an RLTrainingJob. docs/argocd.md describes its installation.
-- A job is healthy when it has succeeded, as a Kubernetes Job in Argo CD: a later sync wave waits until then.
local health = {status = "Progressing", message = "The operator has not reconciled the job yet."}

local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= nil and status.observedGeneration < obj.metadata.generation then
  health.message = "The operator has not reconciled the latest change yet."
  return health
end

local is_true = {}
for _, condition in ipairs(status.conditions) do
  is_true[condition.type] = condition.status == "True"
end
if is_true.Failed or is_true.Stalled then
  health.status = "Degraded"
elseif is_true.Succeeded then
  health.status = "Healthy"
elseif is_true.Suspended then
  health.status = "Suspended"
end

health.message = status.message or status.phase or ""
if status.progress ~= nil and health.status == "Progressing" then
  health.message = health.message .. " (" .. status.progress.display .. ")"
end
return health
