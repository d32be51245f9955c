"""Models and data sets from the Hugging Face hub into the cache HF_HOME of the job's volume, resumed after a kill.

huggingface_hub 2.4 begins a file again after a kill (file_download.py, _download_to_tmp_and_move); these files have
gigabytes.
"""
