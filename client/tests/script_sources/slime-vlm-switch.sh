#!/bin/bash
MODEL_NAME=${MODEL_NAME:-"Qwen3-VL-8B"}
DATASET=${DATASET:-"org/geo3k"}
NUM_GPUS=${NUM_GPUS:-8}
if ! python -c "import slime" 2>/dev/null; then
  pip install -e /root/slime
fi
case "$MODEL_NAME" in
  *-8B) TP=4 ;;
  *-32B) TP=8 ;;
  *) echo "unknown model"; exit 1 ;;
esac
if [ ! -d "/root/models/${MODEL_NAME}" ]; then
  hf download Qwen/${MODEL_NAME} --local-dir /root/models/${MODEL_NAME}
fi
python3 /root/slime/train.py --actor-num-nodes 1 --actor-num-gpus-per-node ${NUM_GPUS} --colocate \
  --hf-checkpoint /root/models/${MODEL_NAME} --tensor-model-parallel-size $TP --multimodal-keys '{"image": "images"}'
