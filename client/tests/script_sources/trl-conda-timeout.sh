timeout 72h conda run --no-capture-output -n trl numactl --cpunodebind=0 accelerate launch --num_processes 8 train_rloo.py --lr 1e-6
