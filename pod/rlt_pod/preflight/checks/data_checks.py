"""The checks of the stage data: volumes, files and caches. Pure functions of the measurements."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rlt_pod.preflight.result import (
    Result,
    check_answers,
    fail_if,
    failed,
    format_gib,
    format_pods,
    format_reasons,
    passed,
    warned,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlt_pod.preflight.expected import Expected
    from rlt_pod.preflight.facts.shared_folder import Folder
    from rlt_pod.preflight.measure import Data

MAX_LINE = 80
"""Maximum number of characters of a template's line in a message."""
MIN_FREE_BYTES = 2**30
"""Space for logs and rollouts, if the size of the model is not known."""


def pods_answer(expected: Expected, measured: Data) -> Result | None:
    """Every pod answers."""
    return check_answers(measured.unanswered)


def run_directory_is_shared(expected: Expected, measured: Data) -> Result:
    """Every pod can write, rename and sync files in the run directory and see the files of other pods there."""
    name = "run-directory"
    path = expected.run_directory
    folders = measured.folders
    broken = {each.pod: each.error for each in folders if each.error is not None}
    if broken:
        message = f"{format_pods(broken)} cannot write {path}: {next(iter(broken.values()))}."
        remedy = "Verify spec.storage: the PVC must be writable by security.runAsUser or fsGroup, and have free space."
        return failed(name, None, message, remedy, broken)
    unseen = _find_unseen(folders) if expected.shared_storage else set()
    if unseen:
        message = f"Other pods do not see the files of {format_pods(unseen)} in {path}."
        return failed(name, None, message, "Use a PVC that several nodes can share (ReadWriteMany).", unseen)
    if not expected.shared_storage:
        return passed(name, None, "All pods can write, rename and sync files in it. Without a PVC, each has its own.")
    return passed(name, None, "All pods can write, rename and sync files in it, and see each other's files.")


def space_is_sufficient(expected: Expected, measured: Data) -> Result:
    """The run directory has space for the checkpoints and the exported model."""
    free = min((each.free for each in measured.folders if each.error is None), default=0)
    value = f"{format_gib(free)} free"
    required = _count_required_bytes(expected)
    limit = format_gib(required)
    count = expected.checkpoints
    need = (
        "logs and rollouts need"
        if not expected.checkpoint_bytes
        else (f"{count} checkpoint{'s' * (count != 1)} with the exported model need{'s' * (count == 1)} about")
    )
    if free < required:
        message = f"{expected.run_directory} has {format_gib(free)} left; {need} {limit}."
        remedy = "Delete files, use a larger volume, or reduce checkpoint.maxToKeep."
        return warned("space", value, message, remedy, threshold=limit)
    return passed("space", value, f"The volume has space: {need} {limit}.", threshold=limit)


def caches_can_be_written(expected: Expected, measured: Data) -> Result:
    """The user of the pods has a name, and can write the folders of downloads and compiled kernels."""
    nameless = [each.pod for each in measured.facts if not each.has_user]
    if nameless:
        message = f"The user ID of {format_pods(nameless)} has no name, which torch and Triton look up."
        return failed("caches", None, message, "Remove the empty USER and LOGNAME from cluster.env.", nameless)
    broken = {
        each.pod: ", ".join(f"{name}={error}" for name, error in sorted(each.unwritable.items()))
        for each in measured.facts
        if each.unwritable
    }
    if not broken:
        return passed("caches", None, "Every pod can write the caches of Hugging Face, Triton, TorchInductor and vLLM.")
    remedy = (
        "Make the folder writable for security.runAsUser or fsGroup, or set storage.hfHome and the variables in "
        "cluster.env to another folder."
    )
    return failed("caches", None, f"{format_reasons(broken)}.", remedy, broken)


def files_can_be_read(expected: Expected, measured: Data) -> Result | None:
    """Every pod can read the model, and the head can read the prompts. Prompts missing in a worker are a warning."""
    if not expected.models and not expected.data_files:
        return None
    value = f"{len(expected.models) + len(expected.data_files)} paths"
    remedy = "Put it on a volume that all pods mount (spec.storage), readable by security.runAsUser."
    fatal = {
        each.pod: sorted(each.unreadable.items())
        for each in measured.facts
        if any(path in expected.models or each.is_head for path in each.unreadable)
    }
    if fatal:
        return failed("files", value, f"{_format_unreadable(fatal)}.", remedy, fatal)
    partial = {each.pod: sorted(each.unreadable.items()) for each in measured.facts if each.unreadable}
    if partial:
        message = (
            f"{_format_unreadable(partial)}. The head reads the prompts, but a reward or environment may need them."
        )
        return warned("files", value, message, remedy, partial)
    return passed("files", value, "Every pod can read them.")


def repositories_can_be_read(expected: Expected, measured: Data) -> Result | None:
    """The head can read the models and data sets on the hub, or they are in its cache."""
    if not expected.repositories:
        return None
    value = f"{len(expected.repositories)} repositories" if len(expected.repositories) > 1 else "1 repository"
    problems = measured.hub_problems
    if not problems:
        names = ", ".join(each.name for each in expected.repositories)
        return passed("hub", value, f"The hub, or its cache on the volume, has {names}.")
    certain = [each for each in problems if each.is_certain]
    message = "; ".join(f"{each.repository}: {each.reason}" for each in certain or problems)
    remedy = (
        "Correct the name, put a token of an account with access into HF_TOKEN (cluster.env with secretKeyRef), permit "
        "egress to the hub, or download it before (storage.modelCache, framework.prepare)."
    )
    return fail_if(bool(certain), "hub", value, f"{message}.", remedy)


def chat_template_works(expected: Expected, measured: Data) -> Result | None:
    """Conversations require a template. It is not known before the files are read whether prompts are conversations."""
    if measured.has_chat_template is None:
        return None
    problem = measured.template_problem
    owner = "data.chatTemplate" if expected.chat_template else f"The chat template in {expected.chat_template_of}"
    if problem:
        verb = "is not valid" if problem.is_syntax else "does not render a message of a user"
        message = f"{owner} {verb}: line {problem.line}, {problem.text[:MAX_LINE]!r}: {problem.message}."
        remedy = "Correct the line, or set data.chatTemplate to a template of the same model family."
        return fail_if(problem.is_syntax, "chat-template", f"line {problem.line}", message, remedy)
    if measured.has_chat_template:
        return passed("chat-template", None, "The chat template renders a message of a user.")
    folder = expected.chat_template_of
    message = f"The tokenizer in {folder} has no chat template, which prompts that are conversations need."
    return warned("chat-template", None, message, "Use an instruct model, or set data.chatTemplate.")


def _count_required_bytes(expected: Expected) -> int:
    if not expected.checkpoint_bytes:
        return MIN_FREE_BYTES
    return expected.checkpoints * expected.checkpoint_bytes + (expected.export_bytes or 0)


def _find_unseen(folders: Sequence[Folder]) -> set[str]:
    """Return the pods whose files most pods do not see. If there are none: the pods whose files any pod does not
    see."""
    unseen = Counter(pod for folder in folders for pod in folder.unseen)
    return {pod for pod, times in unseen.items() if times > len(folders) / 2} or set(unseen)


def _format_unreadable(pods: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    path, reason = next(iter(pods.values()))[0]
    return f"{format_pods(pods)} cannot read {path}: {reason}"


CHECKS = (
    (pods_answer, "files"),
    (run_directory_is_shared, "run directory"),
    (space_is_sufficient, "run directory"),
    (caches_can_be_written, "files"),
    (files_can_be_read, "files"),
    (repositories_can_be_read, "hub"),
    (chat_template_works, "files"),
)
"""Each check, and the measurement that it is based on."""
