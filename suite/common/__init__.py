"""What frameworks and workloads share inside the container: streams, weights, layers, image readers."""
