"""What the policy can talk to in conversations of several turns."""
