-- Argo CD's health of an RLTrainingJob. docs/argocd.md says where it belongs.
-- A job is healthy when it has come to its end, as Argo CD has it for Kubernetes' own Job: what waits for it waits that long.
local health = {status = "Progressing", message = "The operator has not looked at the job yet."}

local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
if status.observedGeneration ~= nil and status.observedGeneration < obj.metadata.generation then
  health.message = "The operator has not looked at the latest change yet."
  return health
end

local holds = {}
for _, condition in ipairs(status.conditions) do
  holds[condition.type] = condition.status == "True"
end
if holds.Failed or holds.Stalled then
  health.status = "Degraded"
elseif holds.Succeeded then
  health.status = "Healthy"
elseif holds.Suspended then
  health.status = "Suspended"
end

health.message = status.message or status.phase or ""
if status.progress ~= nil and health.status == "Progressing" then
  health.message = health.message .. " (" .. status.progress.display .. ")"
end
return health
