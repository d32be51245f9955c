"""`rlt-trainer publish`: publish the export of a run directory, after a publication has failed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.gates import judge_suites
from rlt_trainer.driver.publishing import has_passed
from rlt_trainer.extras import validate_extras
from rlt_trainer.publishing.card import build_card
from rlt_trainer.publishing.publish import publish_folder
from rlt_trainer.telemetry.run_history import read_metrics


def main(arguments: Sequence[str]) -> int:
    """Publish, and print the result for each place. The exit code is 1 if one failed.

    Raises ValueError if the run has no export, names no place, or is not promoted.
    """
    parser = argparse.ArgumentParser(
        prog="rlt-trainer publish",
        description="Publish the exported model of a run to the places in spec.publish where that has failed.",
        epilog="Credentials: RLT_PUBLISH_N_HF_TOKEN, and so on, as in the pods of the job; else HF_TOKEN or AWS_….",
    )
    parser.add_argument("run", type=Path, metavar="DIR", help="run directory with config.json and export/")
    run = parser.parse_args(arguments).run
    config = TrainingConfig.model_validate_json((run / "config.json").read_bytes())
    export = run / "export"
    if not config.publish:
        raise ValueError(f"{run}: its job has no spec.publish: upload {export}, such as with `hf upload`.")
    if not (export / "config.json").is_file():
        raise ValueError(f"{export} has no model: the run has not ended. Use `rlt-trainer export` for a checkpoint.")
    validate_extras(config)
    step = config.training.total_steps
    gates = judge_suites(run, config.evaluation, step)
    if not has_passed(gates):
        figures = "; ".join(f"{suite}: {gate.evidence}" for suite, gate in gates.items() if not gate.passed)
        raise ValueError(f"{run} is not promoted: {figures}. Upload {export} yourself if you want it nevertheless.")
    results = publish_folder(config, export, build_card(config, read_metrics(run, step), gates))
    for each in results:
        print(f"{each.url}: {each.error or each.revision}")
    return int(any(each.error for each in results))
