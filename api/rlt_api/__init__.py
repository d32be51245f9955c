"""The API of rlt as pydantic types: an RLTrainingJob, and the formats that operator and trainer exchange."""
