"""Generation: vLLM, or a plain sampler of transformers, behind one small interface."""
