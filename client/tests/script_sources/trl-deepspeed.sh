deepspeed --num_gpus=4 --master_port 29501 train_dpo.py --deepspeed ds_zero3.json --model_name_or_path /models/m
