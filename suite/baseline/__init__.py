"""The baseline of a machine: what its processor, memory, GPUs, links and disk reach by themselves."""
