# Replaces the entrypoint of the image, which prints a banner and changes the environment.
exec "$@"
