#!/bin/bash
SCRIPT_DIR=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)
source $SCRIPT_DIR/common.env
NUM_NODES=2
STEPS=30
exit_if_max_steps_reached
uv run examples/run_distillation.py \
    --config $CONFIG_PATH \
    distillation.max_num_steps=$STEPS \
    logger.log_dir=$LOG_DIR \
    $@ \
    2>&1 | tee $RUN_LOG
uv run tests/json_dump_tb_logs.py $LOG_DIR --output_path $JSON_METRICS
if [[ $(jq 'keys | length' $JSON_METRICS) -ge $STEPS ]]; then
    uv run tests/check_metrics.py $JSON_METRICS 'mean(data["loss"]) < 1'
fi
