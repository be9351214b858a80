# Stands in for the image's entrypoint, which prints a banner and changes the environment.
exec "$@"
