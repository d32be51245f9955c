#!/bin/bash
STEPS=300
cat > /tmp/inner.sbatch <<EOT
#!/bin/bash
export TOTAL=$STEPS
python3 -m verl.trainer.main_ppo \\
    data.train_files=/data/x.parquet \\
    trainer.total_training_steps=\$TOTAL \\
    trainer.nnodes=2 trainer.n_gpus_per_node=4
EOT
sbatch --nodes=2 --gres=gpu:4 --time=08:00:00 /tmp/inner.sbatch
