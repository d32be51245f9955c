"""The API of rlt as pydantic types: spec and status of an RLTrainingJob, and how operator and trainer talk."""
