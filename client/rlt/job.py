"""A job in Python: built from blocks or a file, validated, rendered, run on this machine, or read from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

if TYPE_CHECKING:
    import pandas
    import polars

    from rlt import blocks
    from rlt.frames import Library
    from rlt.validation import ValidatedFiles
    from rlt_api.findings.finding import Finding
    from rlt_api.spec.runtime_policy import RuntimePolicy
    from rlt_api.status.job_status import RLTrainingJobStatus

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""
Json = Mapping[str, Any]


class Blocks(TypedDict, total=False):
    """The fields of a spec by their names in Python: objects of rlt.blocks, or JSON as in a manifest."""

    runtime_ref: blocks.RuntimeReference | Json
    suspend: bool
    rollout_replicas: int
    managed_by: str
    framework: blocks.Framework | Json
    model: blocks.Model | Json
    data: blocks.Data | Json
    rewards: Sequence[blocks.Reward | Json]
    algorithm: blocks.Algorithm | Json
    training: blocks.Training | Json
    evaluation: Sequence[blocks.Evaluation | Json]
    evaluate_only: blocks.EvaluateOnly | Json
    publish: Sequence[blocks.Publication | Json]
    rollout: blocks.Rollout | Json
    cluster: blocks.Cluster | Json
    network: blocks.Network | Json
    scheduling: blocks.Scheduling | Json
    storage: blocks.Storage | Json
    checkpoint: blocks.Checkpoint | Json
    preflight: blocks.Preflight | Json
    failure_policy: blocks.FailurePolicy | Json
    observability: blocks.Observability | Json
    security: blocks.Security | Json
    active_deadline_seconds: int
    pending_deadline_seconds: int
    ttl_seconds_after_finished: int


class Job:
    """An RLTrainingJob, with the RLRuntimes of its file."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **blocks: Unpack[Blocks],
    ) -> None:
        """Build a job. The manifest contains the given fields alone. Raises TypeError for an unknown field."""
        from rlt_api.schema.crd import GROUP, KIND, VERSION

        given = {"namespace": namespace, "labels": labels, "annotations": annotations}
        metadata = {"name": name, **{key: value for key, value in given.items() if value}}
        spec = {_find_alias(key): _to_json(value) for key, value in blocks.items()}
        self._manifest: Manifest = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": metadata,
            "spec": spec,
        }
        self.runtimes: tuple[Manifest, ...] = ()

    @classmethod
    def from_manifest(cls, manifest: Json, runtimes: Iterable[Json] = ()) -> Job:
        """The job of a manifest, such as one from the API server, with the RLRuntimes that it may name."""
        job = cls.__new__(cls)
        job._manifest = deepcopy(dict(manifest))
        job.runtimes = tuple(deepcopy(dict(each)) for each in runtimes)
        return job

    @classmethod
    def from_file(cls, path: str | Path) -> Job:
        """The job of a YAML or JSON file, which may also contain RLRuntimes.

        Raises InvalidJobError, also if the file is unreadable.
        """
        from rlt.errors import InvalidJobError

        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
            raise InvalidJobError(f"{path}: {reason}.", next=f"ls -l {Path(path).parent}") from error
        return cls.from_yaml(text, source=str(path))

    @classmethod
    def from_yaml(cls, text: str, source: str = "job.yaml") -> Job:
        """The job of a YAML text. Raises InvalidJobError if it is not YAML, or does not contain one job."""
        from rlt.errors import InvalidJobError
        from rlt.manifest_files import parse_documents
        from rlt.program import program_name
        from rlt_api.schema.crd import KIND, RUNTIME_KIND

        documents = list(parse_documents(source, text.encode()))
        advice = f"{program_name()} validate {source}"
        if findings := [finding for each in documents for finding in each.findings]:
            raise InvalidJobError(f"{source}: {findings[0]}", next=advice, findings=findings)
        manifests = [each.manifest for each in documents]
        jobs = [each for each in manifests if each.get("kind") == KIND]
        if len(jobs) != 1:
            raise InvalidJobError(f"{source}: contains {len(jobs)} RLTrainingJobs: pass one.", next=advice)
        return cls.from_manifest(jobs[0], [each for each in manifests if each.get("kind") == RUNTIME_KIND])

    def __repr__(self) -> str:
        return f"<Job {self.namespace or ''}{'/' if self.namespace else ''}{self.name}: {self.summary}>"

    @property
    def manifest(self) -> Manifest:
        """A copy of the manifest."""
        return deepcopy(self._manifest)

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self._manifest["metadata"].get("name", ""))

    @property
    def namespace(self) -> str | None:
        """metadata.namespace. None: the client's."""
        namespace: str | None = self._manifest["metadata"].get("namespace")
        return namespace

    @property
    def spec(self) -> blocks.RLTrainingJobSpec:
        """The spec with the defaults of rlt and without a runtime's. Raises InvalidJobError."""
        from rlt_api.validation.validate import validate_job

        found = validate_job(self.name, self._manifest["spec"])
        if found.spec is None:
            raise _invalid(self.name, found.findings)
        return found.spec

    @property
    def status(self) -> RLTrainingJobStatus:
        """The status. Empty before the first reconciliation."""
        from rlt_core.job import parse_status

        return parse_status(self._manifest)

    @property
    def phase(self) -> str:
        """A summary of the conditions, such as Running. Pending before the first reconciliation."""
        from rlt.job_state import get_phase

        return get_phase(self._manifest)

    @property
    def summary(self) -> str:
        """The state on one line, such as `Running: step 3 of 10, reward 0.5`."""
        from rlt.job_state import NOT_SUBMITTED, summarize

        if "uid" not in self._manifest["metadata"]:
            return NOT_SUBMITTED
        return summarize(self._manifest)

    def is_true(self, condition: str) -> bool:
        """Whether a condition, such as Succeeded, is True for the current spec."""
        from rlt.job_state import is_true

        return "status" in self._manifest and is_true(self._manifest, condition)

    @property
    def has_ended(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.is_true("Succeeded") or self.is_true("Failed")

    def to_yaml(self) -> str:
        """The manifest as YAML."""
        from rlt.yaml_text import to_yaml

        return to_yaml(self._manifest)

    def validate(self) -> tuple[Finding, ...]:
        """What `rlt validate` reports as invalid: field, value, message and fix. Empty if the job is valid."""
        return tuple(finding for _, finding in self._validated().findings)

    def find_warnings(self) -> tuple[str, ...]:
        """The notes of `rlt validate`: what could not be validated, and settings that are probably a mistake."""
        return tuple(note.message for note in self._validated().notes)

    def check(self, policy: RuntimePolicy | None = None) -> ValidatedFiles:
        """Validate the job. Raises InvalidJobError with all findings."""
        validated = self._validated(policy)
        if validated.findings:
            raise _invalid(self.name, tuple(finding for _, finding in validated.findings))
        return validated

    def render(self, nodes: Sequence[Json] = ()) -> list[Manifest]:
        """The manifests that the operator creates for the job, as `rlt render` prints them.

        `nodes`: the objects of the cluster's nodes, which decide on the network settings. Raises InvalidJobError.
        """
        from rlt.offline_job import build_offline_job, detect_network, render_children
        from rlt_core.fabric.nodes import parse_nodes

        job = build_offline_job(self._manifest, self._check_with_runtime())
        return render_children(detect_network(job, parse_nodes([dict(node) for node in nodes]) if nodes else ()))

    def local_run(self, directory: str | Path = "out", *, echo: bool = True) -> LocalResult:
        """Run the job on this machine without Kubernetes, as `rlt run --local`, until it ends.

        Paths below storage.mountPath become paths below `directory`. `echo` prints the output. A notebook also shows a
        progress bar and charts of the metrics, as `client.show` does. Raises InvalidJobError, UnavailableError without
        the trainer, and JobFailedError if the program fails.
        """
        from rlt.errors import JobFailedError
        from rlt.local_process import prepare_local_run, run_process
        from rlt.notebook.live_view import is_notebook
        from rlt.notebook.local_view import LocalView
        from rlt.runs.directory import read_steps

        run = prepare_local_run(self._manifest, self._check_with_runtime(), Path(directory))
        earlier = read_steps(run.run_directory, [])
        view = LocalView(self._manifest, run.total_steps, earlier) if is_notebook() else None
        lines: list[str] = []

        def write(line: str) -> None:
            lines.append(line)
            if view:
                view.write(line)
            if echo:
                print(line, end="")

        code = run_process(run, write, print)
        if view:
            view.end(code)
        if code:
            end = "".join(lines[-5:]).rstrip()
            message = f"{self.name}: the program exited with code {code}. Its last lines:\n{end}"
            raise JobFailedError(message, job=None, next="rlt diagnose FILE, with the output of the program")
        return LocalResult(run.run_directory, "".join(lines))

    def _check_with_runtime(self) -> ValidatedFiles:
        validated = self.check()
        name = validated.get_runtime_name(self._manifest)
        if name is not None and name not in validated.runtimes:
            from rlt.errors import InvalidJobError

            message = f"spec.runtimeRef.name: {name} is not among the runtimes of the job: pass it with from_manifest."
            raise InvalidJobError(message, next=f"kubectl get rlruntime {name} -o yaml")
        return validated

    def _validated(self, policy: RuntimePolicy | None = None) -> ValidatedFiles:
        from rlt.manifest_files import Document
        from rlt.validation import validate_documents
        from rlt_api.spec.runtime_policy import ANY_RUNTIME

        documents = [Document(self.name, 1, each, {}) for each in (self._manifest, *self.runtimes)]
        return validate_documents(documents, policy or ANY_RUNTIME)


@dataclass(frozen=True)
class LocalResult:
    """A job that has run on this machine."""

    run_directory: Path
    """The directory with the metrics, and for the builtin trainer also with checkpoints and rollouts."""
    output: str
    """What the program printed."""

    @overload
    def metrics(self, library: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def metrics(self, library: Literal["polars"]) -> polars.DataFrame: ...
    def metrics(self, library: Library = "pandas") -> pandas.DataFrame | polars.DataFrame:
        """The metrics of each step. Raises UnavailableError if the program records none, and MissingExtraError."""
        from rlt.errors import UnavailableError
        from rlt.frames import build_frame
        from rlt.runs.directory import read_steps
        from rlt_pod.report.step_history import METRICS_FILE

        if not (self.run_directory / METRICS_FILE).exists():
            raise UnavailableError("The program has recorded no metrics.", next="print(result.output)")
        return build_frame(read_steps(self.run_directory, []), library)


def _invalid(name: str, findings: Sequence[Finding]) -> Exception:
    from rlt.errors import InvalidJobError

    lines = "\n".join(map(str, findings))
    return InvalidJobError(f"{name} is invalid:\n{lines}", next="job.validate()", findings=findings)


def _find_alias(key: str) -> str:
    """The name of a field in a manifest. Raises TypeError if it does not exist."""
    from rlt_api.findings.spelling import find_nearest_word
    from rlt_api.spec.job_spec import RLTrainingJobSpec

    field = RLTrainingJobSpec.model_fields.get(key)
    if field is None:
        meant = find_nearest_word(key, RLTrainingJobSpec.model_fields, max_distance=3)
        raise TypeError(f"Job() has no field {key}: {f'use {meant}' if meant else 'see help(rlt.job.Blocks)'}.")
    return str(field.alias)


def _to_json(value: Any) -> Any:
    """JSON of a block: only what was given."""
    from rlt_api.model import ApiModel

    if isinstance(value, ApiModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _to_json(each) for key, each in value.items()}
    return [_to_json(each) for each in value] if isinstance(value, list | tuple) else value
