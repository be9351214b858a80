"""Which machine is enough: a model of the step time over processors, batch and devices, fitted to results."""
