set -e
source scripts/models/glm4-9B.sh
PYTHONPATH=/root/Megatron-LM python tools/convert_hf_to_torch_dist.py --hf-checkpoint /root/glm --save /root/glm_dist
python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 4 --rollout-num-gpus 8 --ref-load /root/glm_dist
