export WANDB_MODE=offline
uv run rl @ examples/wordle/rl.toml --output-dir /ckpt/wordle
