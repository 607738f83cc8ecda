"""Trainers: REINFORCE, ReBN, the GRPO family and PPO over turns, a file each; the loop and the policies they train."""
