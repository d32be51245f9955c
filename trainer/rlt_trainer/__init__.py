import os

from rlt_trainer.versions import validate_versions

# torchao registers Enums, which torch 2.13 calls deprecated. transformers and vLLM import torchao in every process, and
# each would print two warnings that a user can do nothing about. TORCH_LOGS: torch/_logging/_registrations.py.
os.environ.setdefault("TORCH_LOGS", "-torch.utils._pytree")

validate_versions()
