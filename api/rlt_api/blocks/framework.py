"""spec.framework: the program that runs on the job's Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import AbsolutePath, ApiModel, DnsLabel, KeyedBy, Positive, cel

Argument = Annotated[str, StringConstraints(max_length=65536)]
Archive = Annotated[str, StringConstraints(pattern=r"^(https|s3|gs|file)://[^\s]+\.zip$", max_length=1024)]
"""The URI of an archive with one folder at its top, in the protocols of Ray's runtime environments."""
Package = Annotated[str, StringConstraints(pattern=r"^(https|s3|gs|file)://[^\s]+\.(zip|whl)$", max_length=1024)]
"""The URI of an archive or a wheel."""
Requirement = Annotated[str, StringConstraints(pattern=r"^[^\s][^\n]*$", max_length=512)]
"""A line of a requirements file."""

MAX_STEPS = 16
"""Maximum number of steps, with the downloads that the operator adds."""


class RuntimeEnv(ApiModel):
    """Files and packages that Ray adds to the image for the command, in all pods: a part of Ray's runtime_env."""

    working_dir: Archive | None = None
    """URI of a .zip file with the working directory of the command, one folder, such as https://host/code.zip, or
    file:///checkpoints/code.zip on the job's volume. Default: Ray's."""
    py_modules: Annotated[list[Package], Field(max_length=16)] = []
    """URIs of wheels, and of .zip files with Python packages in one folder."""
    pip: Annotated[list[Requirement], Field(max_length=64)] = []
    """Requirements that pip installs into a virtual environment on top of the image, such as math-verify==0.8.0."""


class PrepareStep(ApiModel):
    """A program that runs on the head before the program of the job."""

    name: DnsLabel
    """Name of the step, for messages and `rlt logs --step`."""
    command: Annotated[list[Argument], Field(min_length=1, max_length=256)]
    """The program and its arguments. It runs without a shell, with the variables of cluster.env."""


VerlVersion = Literal["0.5", "0.9"]


class Framework(ApiModel):
    """The program that runs on the Ray cluster."""

    model_config = cel(
        (
            "(has(self.type) && self.type == 'command') == has(self.command)",
            "command is required for type command, and not allowed otherwise",
        ),
        (
            "has(self.type) && self.type == 'command' || !has(self.totalSteps)",
            "totalSteps is only for type command",
        ),
        (
            "has(self.type) && self.type in ['command', 'roll'] || !has(self.workingDirectory)",
            "workingDirectory is only for types command and roll",
        ),
        (
            "has(self.type) && self.type == 'command' || !has(self.runtimeEnv)",
            "runtimeEnv is only for type command",
        ),
        (
            "!has(self.workingDirectory) || !has(self.runtimeEnv) || !has(self.runtimeEnv.workingDir)",
            "must not have both workingDirectory and runtimeEnv.workingDir",
        ),
        ("!has(self.command) || self.command.size() > 0", "command must not be empty"),
        (
            "has(self.type) && self.type == 'verl' || !has(self.version)",
            "version is only for type verl",
        ),
        (
            "has(self.type) && self.type in ['verl', 'openrlhf', 'roll'] || !has(self.overrides) "
            "|| self.overrides.size() == 0",
            "overrides are only for types verl, openrlhf and roll",
        ),
    )

    type: Literal["builtin", "verl", "openrlhf", "roll", "command"] = "builtin"
    """builtin is rlt's trainer. verl, openrlhf and roll run verl's main_ppo, OpenRLHF's train_ppo_ray and ROLL's RLVR
    pipeline with the settings of this spec, in an image with it. command runs the given command on the head, as a Ray
    job."""
    version: VerlVersion | None = None
    """The version of verl in the image: 0.5 or 0.9, whose settings have different names. In YAML, write it in quotes.
    Default: 0.9."""
    overrides: Annotated[list[Argument], Field(max_length=256)] = []
    """Further settings: of verl as Hydra overrides such as trainer.balance_batch=false, of OpenRLHF as options such as
    --ds.zpg=8, of ROLL as actor_infer.strategy_args.strategy_name=sglang. They come last, so that they replace
    this spec's settings."""
    command: Annotated[list[Argument], Field(max_length=256)] | None = None
    """The program and its arguments, such as python3 -m verl.trainer.main_ppo …. It runs without a shell. Lines in
    verl's format `step:N - key:value - …` in its output become the job's progress and metrics."""
    working_directory: AbsolutePath | None = None
    """Working directory of the command. Default: Ray's. With type roll: the folder with ROLL's sources, which contains
    examples/start_rlvr_pipeline.py, in the image. Default: /workspace/ROLL."""
    total_steps: Positive | None = None
    """The command's total number of steps, if it does not print them as verl does."""
    runtime_env: RuntimeEnv | None = None
    """Files and packages for the command that the image does not contain. Environment variables are in cluster.env."""
    prepare: Annotated[list[PrepareStep], Field(max_length=MAX_STEPS), KeyedBy("name")] = []
    """Steps before the preflight checks and the program, for all types, such as a download of data. They run one
    after another. With storage.claimName, a step that has succeeded does not run again in later attempts; without it,
    each new head pod runs all steps. If model or data are on the hub, and the job has a volume for them, the operator
    adds the steps download-model and download-data, which download them once for the volume: see
    docs/prepare-volume.md."""
