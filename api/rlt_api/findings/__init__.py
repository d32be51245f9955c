"""What validation finds: findings, their texts, and the masking of secrets."""
