"""Models and data of the Hugging Face hub or of a bucket, as files on the job's volume, resumed after a kill.

huggingface_hub 2.4 begins a file again after a kill (file_download.py, _download_to_tmp_and_move); these files have
gigabytes. Requests to a bucket are signed with the standard library: the images of other frameworks have no client.
"""
