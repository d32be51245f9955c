set -x

if [ "$#" -lt 2 ]; then
    echo "Usage: sft.sh <processes> <folder> [more settings]"
    exit 1
fi
processes=$1
folder=$2
shift 2
torchrun --standalone --nnodes=1 --nproc_per_node=4 \
     -m verl.trainer.fsdp_sft_trainer \
    data.train_files=/data/sft/train.parquet \
    model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct \
    trainer.default_local_dir=$folder \
    trainer.total_epochs=4 $@
